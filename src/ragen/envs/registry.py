"""Environment presets by name: a class and the settings it is made with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen.config.settings import validated
from ragen.envs.base import Environment, EnvSettings
from ragen.registry import Registry


@dataclass(frozen=True, slots=True)
class EnvPreset:
    """A named variant of an environment: its class and the settings that differ from the class's defaults."""

    cls: type[Environment]
    about: str
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, overrides: Mapping[str, Any]) -> EnvSettings:
        """The preset's settings with these on top; a wrong one is a ConfigError."""
        return validated(self.cls.settings_class, {**self.overrides, **overrides}, prefix="env.")


environments: Registry[EnvPreset] = Registry("environment")


def environment_factory(spec: Mapping[str, Any]) -> Callable[[], Environment]:
    """A function that makes the environment a config's ``env`` section names, checked now rather than at the first call."""
    overrides = {key: value for key, value in spec.items() if key != "name"}
    preset = environments.get(str(spec.get("name", "bandit")))
    settings = preset.settings(overrides)
    return lambda: preset.cls(settings)
