"""Settings that count only where another one is set so; here those of a rollout, which need no torch to be checked."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ragen.config.paths import fields
from ragen.config.schema import Config


@dataclass(frozen=True, slots=True)
class Condition:
    """``keys`` count only where ``met`` holds, in ``words``."""

    keys: tuple[str, ...]
    words: str
    met: Callable[[Config], bool]


ROLLOUT = (
    Condition(("rollout.window",), "rollout.context 'window'", lambda c: c.rollout.context == "window"),
    Condition(
        ("rollout.env_mode", "rollout.env_timeout_s"), "rollout.env_workers above 0", lambda c: c.rollout.env_workers > 0
    ),
)


def value_of(config: Config, key: str) -> object:
    """The setting of a dotted key."""
    value: object = config
    for part in key.split("."):
        value = getattr(value, part)
    return value


def without_effect(config: Config, conditions: Sequence[Condition]) -> Iterator[tuple[str, str]]:
    """Each setting away from its default that has no effect here, and what is wrong with it."""
    known = fields()
    for condition in conditions:
        for key in condition.keys:
            value, default = value_of(config, key), known[key].default
            if value != default and not condition.met(config):
                told = f"{key} is {value}, but it counts only with {condition.words}"
                yield key, f"{told}: set that, or leave {key} out ({default})"
