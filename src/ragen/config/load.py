"""Settings from a preset name, a YAML file or a mapping, with command-line overrides on top.

A preset is named ``<environment>-<method>[-small|-tiny]`` and composed of the YAML pieces in ``presets/``; later pieces win:
``methods/<method>``, then ``<size>/common``, ``<size>/<family>`` (the environment's name up to the first ``-``),
``variants/<environment>`` (what a variant is about, where its family's piece says otherwise), then ``<size>/<method>``.
Environments are checked later, where they are built (``ragen.envs.registry.environment_factory``).
"""

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from ragen.config.paths import fields, is_text, sections, unknown
from ragen.config.schema import CLIP_BOUNDS, Config
from ragen.config.settings import validated
from ragen.config.yaml_text import is_null, near_file, parse_yaml
from ragen.errors import ConfigError, reason
from ragen.registry import MANY, at_most, nearest

METHODS = ("starpo-ppo", "starpo-grpo", "starpo-s-ppo", "starpo-s-grpo")
SIZES = ("", "small", "tiny")
FAMILIES = ("bandit", "frozen_lake", "sokoban", "webshop")
_NAMED = ("env", "model", "advantage", "loss")  # sections for which `--section NAME` means `--section.name NAME`


def load_config(source: str | Path | Mapping[str, Any], *overrides: Sequence[str] | Mapping[str, Any]) -> Config:
    """The settings of a run.

    ``source`` is a preset name, a YAML file (which may begin with ``preset: NAME``) or a mapping of the same form.
    Each of ``overrides`` is laid over those before it: words, ``["--a.b", "value", "--c=value"]`` or ``["a.b=value"]`` with
    YAML scalars as values, or a mapping. In any of them a key may be dotted (``a.b: 1`` is ``a: {b: 1}``), sections are laid
    over what is there key by key, and another environment or advantage rule than the one below drops that one's settings
    (an environment ``eval.also``, too), another loss its clip bounds where they bound something else. Raises ConfigError
    with the nearest valid name for an unknown key.
    """
    values = _source_values(source)
    for layer in overrides:
        values = _laid_over(values, _nested(layer.items() if isinstance(layer, Mapping) else parse_overrides(layer)))
    known = fields()
    flat = dict(_flat(values))
    if "preset" in flat:
        raise ConfigError("preset is no setting: a preset is what the other settings are laid over, `ragen train PRESET …`")
    if strangers := [key for key in flat if key not in known]:
        raise ConfigError("\n".join(at_most(map(unknown, strangers[:MANY]), len(strangers), "unknown settings")))
    return validated(Config, values)


def preset_names(environments: Iterable[str] = FAMILIES) -> list[str]:
    """The names of all presets for these environments."""
    parts = product(environments, METHODS, SIZES)
    return ["-".join(filter(None, part)) for part in parts]


def sizes_of_families() -> dict[str, list[str]]:
    """The environments that bring values of their own to a size, each with the sizes: ``FAMILIES`` and further ones."""
    root = files("ragen.config") / "presets"
    found: dict[str, list[str]] = {}
    for size in SIZES[1:]:
        for name in sorted(piece.name.removesuffix(".yaml") for piece in (root / size).iterdir()):
            if name not in ("common", *METHODS):
                found.setdefault(name, []).append(size)
    return dict(sorted(found.items()))


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
            f"unknown preset '{name}': {nearest(name, known, '`ragen presets`')} (a preset is <environment>-<method>"
            f"[-small|-tiny]; environments: `ragen envs`; methods: {', '.join(METHODS)}; a file's name ends in .yaml)"
        )
    values: dict[str, Any] = {"env": {"name": environment}}
    for piece in _pieces(environment, method, size):
        values = _merged(values, piece)
    if environment not in FAMILIES:  # a family's piece may choose a variant and its test set, but not for another variant
        values["env"]["name"] = environment
        values.get("eval", {}).pop("also", None)
    return values


def layered(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """One set of overrides out of several: sections within sections, later layers over earlier ones key by key."""
    out: dict[str, Any] = {}
    for layer in layers:
        out = _merged(out, _nested(layer.items()))
    return out


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
        pairs.append((key, _value(key, text)))
    return pairs


def _value(key: str, text: str) -> Any:
    """A command-line text as a YAML value, but a text without quotes as it is typed: a ``#`` in it begins no comment.

    A text setting keeps what YAML would take for a number, a date, a mapping or an anchor, too. Which settings of an
    environment are texts is not known here: a mapping or list is one in brackets only, and a number with zeros in front is
    a text, out of which a setting that is a number makes one.
    """
    field = fields().get(f"{key}.name" if key in _NAMED and key != "env" else key)
    if not text.strip() or text.lstrip().startswith("#"):
        return text
    try:
        value = parse_yaml(text, f"--{key}")
    except ConfigError:
        value = text
    if key in _NAMED and isinstance(value, dict):
        return value
    if isinstance(value, str) and text.strip()[0] not in "'\"":
        return text.strip()
    if key.startswith("env.") and key != "env.name":
        return text if _is_typed_text(value, text.strip()) else value
    textual = key in ("env", "env.name") or (field is not None and is_text(field.annotation))
    quoted = isinstance(value, str) or (value is None and is_null(text))
    return text if textual and not quoted else value


def _is_typed_text(value: Any, text: str) -> bool:
    """Whether what was typed for an environment's setting means more than the ``value`` that YAML takes it for."""
    if isinstance(value, dict | list):
        return text[0] not in "{["
    if value is None:
        return not is_null(text)
    return type(value) is int and str(value) != text.partition(" #")[0].strip()


def _nested(pairs: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """Sections within sections, out of keys that may be dotted; longer keys are laid over shorter ones."""
    out: dict[str, Any] = {}
    for key, given in sorted(pairs, key=lambda pair: str(pair[0]).count(".")):
        value = _plain(str(key), given)
        if key in _NAMED and _is_name(value):
            value = {"name": str(value)}
        for part in reversed(str(key).split(".")):
            value = {part: value}
        _lay(out, value)
    known = fields()
    return {key: value for key, value in out.items() if value is not None or key in known}  # an empty section says nothing


def _is_name(value: Any) -> bool:
    """Whether a value can be meant for a name: YAML takes that of the game 2048 for a number."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def _plain(key: str, value: Any) -> Any:
    """A value as YAML has it: paths are texts, tuples and arrays are lists, numbers are Python's own."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(name): _plain(f"{key}.{name}", inner) for name, inner in value.items()}
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(key, inner) for inner in value]
    if isinstance(value, str | int | float | None):
        return str(value) if key == "env.name" and _is_name(value) else value
    raise ConfigError(f"setting '{key}' is {value!r}: settings are texts, numbers, bools, null, lists and mappings of those")


def _source_values(source: object) -> dict[str, Any]:
    if isinstance(source, Mapping):
        return _with_preset(source, "the mapping")
    if not isinstance(source, str | Path):
        raise ConfigError(f"cannot train from {source!r}: give a preset name (`ragen presets`), a YAML file or a mapping")
    path = Path(source)
    if path.suffix not in (".yaml", ".yml") and not _is_file(path):
        return preset_values(str(source))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"cannot read '{path}': {reason(error)}; {near_file(path)}give a YAML file or a preset name (`ragen presets`)"
        ) from None
    values = parse_yaml(text, str(path))
    if not values:
        raise ConfigError(f"{path} is empty: begin it with a line such as `preset: bandit-starpo-s-grpo-tiny`")
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: settings are a mapping (key: value lines), not a {type(values).__name__}")
    if {"axes", "sizes"} <= set(values):
        raise ConfigError(
            f"{path} is a study, a grid of runs, not the settings of one: `ragen study run {shlex.quote(str(path))}`"
        )
    return _with_preset(values, str(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have: too long, a NUL in it
        return False


def _with_preset(values: Mapping[str, Any], origin: str) -> dict[str, Any]:
    own = _nested((key, value) for key, value in values.items() if key != "preset")
    if "preset" not in values:
        return own
    if not isinstance(values["preset"], str):
        raise ConfigError(f"{origin}: preset is {values['preset']!r}; it must be a preset's name (`ragen presets`)")
    return _laid_over(preset_values(values["preset"]), own)


def _laid_over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` over ``base``; another environment or advantage rule than the base's begins with its own settings.

    So does another loss with its clip bounds, where they bound something else; the other terms of the objective stay. The
    environments to evaluate on as well (``eval.also``) go with the environment they were chosen for.
    """
    for section in ("env", "advantage", "loss"):
        below, above = base.get(section), own.get(section)
        if isinstance(below, Mapping) and isinstance(above, Mapping) and "name" in above:
            kept = _still_meant(section, below, above["name"])
            base = {**base, section: kept}
            if section == "env" and kept is not below and isinstance(beside := base.get("eval"), Mapping):
                base["eval"] = {key: value for key, value in beside.items() if key != "also"}
    return _merged(base, own)


def _still_meant(section: str, below: Mapping[str, Any], name: Any) -> Mapping[str, Any]:
    """What of the lower layer's section keeps its meaning where the upper one says ``name``."""
    before = below.get("name", fields()["env"].default["name"] if section == "env" else fields()[f"{section}.name"].default)
    if section == "loss":
        same = CLIP_BOUNDS.get(str(before)) == CLIP_BOUNDS.get(str(name))
        return below if same else {key: value for key, value in below.items() if key not in ("clip_low", "clip_high")}
    return below if before == name else {}


def _pieces(environment: str, method: str, size: str) -> Iterator[dict[str, Any]]:
    root = files("ragen.config") / "presets"
    names = [f"methods/{method}"]
    if size:
        family = environment.partition("-")[0]
        names += [f"{size}/common", f"{size}/{family}", f"variants/{environment}", f"{size}/{method}"]
    for name in names:
        piece = root.joinpath(*f"{name}.yaml".split("/"))
        if piece.is_file():
            yield _with_preset(parse_yaml(piece.read_text(encoding="utf-8"), f"preset piece {name}"), name)


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    """``high`` laid over ``low``, section by section."""
    out: dict[str, Any] = {}
    for layer in (low, high):
        _lay(out, layer)
    return out


def _lay(out: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Lay ``layer`` over ``out``, which changes; sections are copied as they come in, so what is in ``out`` is its own."""
    for key, value in layer.items():
        if not isinstance(value, Mapping):
            out[key] = value
            continue
        below = out.get(key)
        if not isinstance(below, dict):
            below = out[key] = {}
        _lay(below, value)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping) and key != "env":
            yield from _flat(value, f"{key}.")
        elif key not in sections():
            yield key, value
