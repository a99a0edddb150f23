"""The dotted names of all settings, and the nearest one to a name that does not exist."""

import types
import typing
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ragen.config.schema import Config

ENV_COMMON = ("max_turns", "max_actions", "max_actions_per_turn", "wording")  # what every environment has, for hints

GONE = {
    "run.tensorboard": "it is run.trackers now: [tensorboard] in place of true; in place of false, leave it out",
}  # what became of settings of earlier versions


@cache
def fields() -> Mapping[str, FieldInfo]:
    """Every setting of a run by its dotted name, in the schema's order (``env`` is one setting: a mapping)."""
    return types.MappingProxyType(dict(_walk(Config, "")))


@cache
def sections() -> frozenset[str]:
    """The dotted names of all sections that hold settings or sections."""
    parts = [path.split(".") for path in fields()]
    return frozenset(".".join(path[:depth]) for path in parts for depth in range(1, len(path)))


def _walk(cls: type[BaseModel], prefix: str) -> Iterable[tuple[str, FieldInfo]]:
    for name, field in cls.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _walk(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def is_text(annotation: Any) -> bool:
    """Whether a setting takes free text or a word out of a list."""
    union = typing.get_origin(annotation) in (types.UnionType, typing.Union)
    kinds = typing.get_args(annotation) if union else (annotation,)
    return any(kind is str or typing.get_origin(kind) is typing.Literal for kind in kinds)


def unknown(key: str) -> str:
    """The message for a setting that does not exist, with the nearest that do, searched over all dotted names."""
    if key in GONE:
        return f"unknown setting '{key}': {GONE[key]}"
    scores = {path: likeness(key, path) for path in (*fields(), *(f"env.{name}" for name in ENV_COMMON))}
    best = max(scores.values())
    close = sorted((path for path, score in scores.items() if score > best - 0.02), key=_rare)
    nearest = [f"'{path}'" for path in close[:3]]
    hint = f"did you mean {' or '.join(nearest)}?" if best >= 0.6 else "`docs/settings.md` lists all settings"
    return f"unknown setting '{key}': {hint}"


def _rare(path: str) -> bool:
    """Whether a setting belongs to the warm-up, which has names of the training proper that are meant more often."""
    return path.startswith("warmup.")


def likeness(key: str, path: str) -> float:
    """How well a mistyped ``key`` fits ``path``: by the last word, its initials (lr = learning_rate), and the section."""
    section, _, word = key.rpartition(".")
    home, _, name = path.rpartition(".")
    words = SequenceMatcher(None, word, name).ratio()
    if len(word) > 1 and word == "".join(part[0] for part in name.split("_")):
        words = 0.9
    whole = SequenceMatcher(None, key, path).ratio()
    bonus = 0.15 * SequenceMatcher(None, section, home).ratio() if section else 0.0
    return max(words, whole) + bonus
