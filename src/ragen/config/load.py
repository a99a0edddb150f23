"""Settings from a preset name, a YAML file or a mapping, with command-line overrides on top.

A preset is named ``<environment>-<method>[-small|-tiny]`` and composed of the YAML pieces in ``presets/``; later pieces win:
``methods/<method>``, then ``<size>/common``, ``<size>/<family>`` (the environment's name up to the first ``-``), then
``<size>/<method>``. Environments are checked later, where they are built (``ragen.envs.registry.environment_factory``).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from ragen.config.paths import fields, is_bool, is_text, unknown
from ragen.config.schema import Config
from ragen.config.settings import validated
from ragen.config.yaml_text import parse_yaml
from ragen.errors import ConfigError
from ragen.registry import nearest

METHODS = ("starpo-ppo", "starpo-grpo", "starpo-s-ppo", "starpo-s-grpo")
SIZES = ("", "small", "tiny")
FAMILIES = ("bandit", "frozen_lake", "sokoban")
_NAMED = ("env", "model", "advantage")  # sections for which `--section NAME` means `--section.name NAME`


def load_config(source: str | Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Config:
    """The settings of a run.

    ``source`` is a preset name, a YAML file (which may begin with ``preset: NAME``) or a mapping of the same form.
    ``overrides`` are ``["--a.b", "value", "--c=value"]`` or ``["a.b=value"]``; values are YAML scalars. ``--env NAME`` drops
    the preset's own environment settings, ``--env.key value`` changes one. Raises ConfigError with the nearest valid name
    for an unknown key.
    """
    values = _source_values(source)
    pairs = parse_overrides(overrides)
    for key, value in sorted(pairs, key=lambda pair: pair[0].count(".")):
        _assign(values, key, value)
    known = fields()
    for key, value in _flat(values, known):
        if key not in known:
            raise ConfigError(unknown(key))
        if isinstance(value, bool) and not is_bool(known[key].annotation) and key != "env":
            raise ConfigError(f"setting '{key}' is {value}: true and false do not fit here ({known[key].description})")
    return validated(Config, values)


def preset_names(environments: Iterable[str] = FAMILIES) -> list[str]:
    """The names of all presets for these environments."""
    parts = product(environments, METHODS, SIZES)
    return ["-".join(filter(None, part)) for part in parts]


def preset_values(name: str) -> dict[str, Any]:
    """The plain values of a preset; raises ConfigError for an unknown one."""
    environment, mark, rest = name.partition("-starpo")
    method, size = f"starpo{rest}", ""
    for suffix in SIZES[1:]:
        if method.endswith(f"-{suffix}"):
            method, size = method.removesuffix(f"-{suffix}"), suffix
    if not mark or not environment or method not in METHODS:
        known = preset_names([environment] if mark and environment else FAMILIES)
        raise ConfigError(
            f"unknown preset '{name}': {nearest(name, known)} A preset is <environment>-<method>[-small|-tiny] "
            f"(environments: `ragen envs`; methods: {', '.join(METHODS)}); a file's name ends in .yaml"
        )
    values: dict[str, Any] = {"env": {"name": environment}}
    for piece in _pieces(environment, method, size):
        values = _merged(values, piece)
    if environment not in FAMILIES:  # a family's piece may choose a variant and its test set, but not for another variant
        values["env"]["name"] = environment
        values.get("eval", {}).pop("also", None)
    return values


def parse_overrides(words: Sequence[str]) -> list[tuple[str, Any]]:
    """Pairs of dotted key and value from command-line words, in order, each value parsed for its setting."""
    pairs: list[tuple[str, Any]] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        key, equals, text = word.removeprefix("--").partition("=")
        if not key or not (word.startswith("--") or equals):
            raise ConfigError(f"'{word}' is not an override: write --key value or --key=value (keys: docs/settings.md)")
        if not equals:
            if not rest or rest[0].startswith("--"):
                raise ConfigError(f"--{key} needs a value: write --{key} VALUE (true or false for a switch)")
            text = rest.pop(0)
        pairs.append((f"{key}.name" if key in _NAMED else key, _value(key, text)))
        if key == "env":
            pairs[-1] = ("env", {"name": pairs[-1][1]})
    return pairs


def _value(key: str, text: str) -> Any:
    """A command-line text as a YAML value; a text setting keeps what YAML would take for a number, a date or a comment."""
    field = fields().get(f"{key}.name" if key in _NAMED and key != "env" else key)
    if not text.strip() or text.lstrip().startswith("#"):
        return text
    try:
        value = parse_yaml(text, f"--{key}")
    except ConfigError:
        value = text
    textual = key in ("env", "env.name") or (field is not None and is_text(field.annotation))
    return text if textual and not isinstance(value, str | None) else value


def _assign(values: dict[str, Any], key: str, value: Any) -> None:
    if key == "env":
        values["env"] = value
        return
    *parents, last = key.split(".")
    place = values
    for parent in parents:
        inner = place.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(unknown(key))
        place = inner
    place[last] = value


def _source_values(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return _with_preset(source, "the mapping")
    path = Path(source)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot read '{path}': {error}; give a YAML file or a preset name (`ragen presets`)"
            ) from None
        values = parse_yaml(text, str(path)) or {}
        if not isinstance(values, dict):
            raise ConfigError(f"{path}: settings are a mapping (key: value lines), not a {type(values).__name__}")
        return _with_preset(values, str(path))
    return preset_values(str(source))


def _with_preset(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    empty = {key for key, value in values.items() if value is None and any(path.startswith(f"{key}.") for path in fields())}
    own = {key: value for key, value in values.items() if key != "preset" and key not in empty}
    if isinstance(own.get("env"), str):
        own["env"] = {"name": own["env"]}
    if "preset" not in values:
        return _merged({}, own)
    if not isinstance(values["preset"], str):
        raise ConfigError(f"{origin}: preset is {values['preset']!r}; it must be a preset's name (`ragen presets`)")
    base = preset_values(values["preset"])
    if isinstance(own.get("env"), Mapping) and own["env"].get("name", base["env"]["name"]) != base["env"]["name"]:
        base["env"] = {}
    return _merged(base, own)


def _pieces(environment: str, method: str, size: str) -> Iterator[dict[str, Any]]:
    root = files("ragen.config") / "presets"
    names = [f"methods/{method}"]
    if size:
        names += [f"{size}/common", f"{size}/{environment.partition('-')[0]}", f"{size}/{method}"]
    for name in names:
        piece = root.joinpath(*f"{name}.yaml".split("/"))
        if piece.is_file():
            yield _with_preset(parse_yaml(piece.read_text(encoding="utf-8"), f"preset piece {name}"), name)


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """``high`` laid over ``low``, section by section."""
    out = {key: dict(value) if isinstance(value, Mapping) else value for key, value in low.items()}
    for key, value in high.items():
        below = out.get(key)
        if isinstance(value, Mapping):
            out[key] = _merged(below if isinstance(below, Mapping) else {}, value)
        else:
            out[key] = value
    return out


def _flat(values: Mapping[str, Any], known: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key not in known:
            yield from _flat(value, known, f"{key}.")
        elif not any(path.startswith(f"{key}.") for path in known):
            yield key, value
