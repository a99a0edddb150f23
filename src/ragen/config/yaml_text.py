"""YAML as people expect it: the YAML 1.2 core rules for plain scalars, and a key written twice is an error.

PyYAML's default follows YAML 1.1, where ``1e-4`` is a string, ``no`` is false and ``010`` is eight.
"""

import math
import re
from collections import Counter
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from ragen.errors import ConfigError

_FLOAT = re.compile(
    r"^[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?$|^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN|NAN)$"
)
_INT = re.compile(r"^[-+]?[0-9]+$")
_BOOL = re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$")
_NULL = re.compile(r"^(?:~|null|Null|NULL|)$")
MOST = 100_000  # values in a text, aliases written out: few lines of them can stand for more than memory holds


class CoreLoader(yaml.SafeLoader):
    """``yaml.SafeLoader`` with the scalar rules of YAML 1.2."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own class attribute)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """A mapping; the same key twice is an error."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice: list[str] = []
        with suppress(TypeError):  # a list or a mapping as a key: refused below
            twice = sorted(str(key) for key, count in Counter(keys).items() if count > 1)
        if twice:
            raise yaml.MarkedYAMLError(None, None, f"key '{twice[0]}' is written twice", node.start_mark)
        return dict(super().construct_mapping(node, deep=deep))


CoreLoader.add_implicit_resolver("tag:yaml.org,2002:null", _NULL, ["~", "n", "N", ""])
CoreLoader.add_implicit_resolver("tag:yaml.org,2002:bool", _BOOL, list("tTfF"))
CoreLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
CoreLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+.0123456789"))
CoreLoader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))


def parse_yaml(text: str, origin: str) -> Any:
    """The plain value (mapping, list, scalar) of a YAML text; ``origin`` names it in errors. No tags, no objects."""
    try:
        value = yaml.load(text, Loader=CoreLoader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or str(error)
        raise ConfigError(f"{origin}{where}: not valid YAML: {what}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{origin}: not valid YAML: {error}") from None
    size = _written_out(value, set(), {})
    if size == math.inf:
        raise ConfigError(f"{origin}: an anchor (&) stands for something that contains itself: write the value out")
    if size > MOST:
        raise ConfigError(f"{origin}: with its anchors (&) written out it holds {size:,} values; {MOST:,} are the most")
    return value


def is_null(text: str) -> bool:
    """Whether a text is one that YAML reads as null by its word, not through a tag or an anchor.

    >>> is_null(" null "), is_null("&a"), is_null("none")
    (True, False, False)
    """
    return _NULL.match(text.strip()) is not None


def _written_out(value: Any, above: set[int], done: dict[int, float]) -> float:
    """How many values ``value`` holds where each alias stands for a copy; infinitely many where it contains itself."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) in above:
        return math.inf
    if id(value) not in done:
        above.add(id(value))
        inside = value.values() if isinstance(value, dict) else value
        done[id(value)] = 1 + sum(_written_out(inner, above, done) for inner in inside)
        above.remove(id(value))
    return done[id(value)]


def dump_yaml(value: Any) -> str:
    """Plain values as YAML that ``parse_yaml`` reads back to equal values."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes what either YAML version would read as something other than a string."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    breaks = any(character in text for character in "\x85\u2028\u2029")  # YAML folds these line breaks unless escaped
    plain = not breaks and not any(rule.match(text) for rule in (_FLOAT, _INT, _BOOL, _NULL))
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Dumper.add_representer(str, _string)


def near_file(path: Path) -> str:
    """The YAML file beside ``path`` that may have been meant, as the beginning of a hint; empty where none is near."""
    with suppress(OSError):
        names = [file.name for file in path.parent.glob("*.y*ml") if file.name != path.name and file.is_file()]
        close = get_close_matches(path.name, names, n=1, cutoff=0.7)
        return f"did you mean '{path.with_name(close[0])}'? Else " if close else ""
    return ""
