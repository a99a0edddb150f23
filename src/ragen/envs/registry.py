"""Environments by name: a registered preset, or a class in a file or module (``FILE.py:Class``, ``module:Class``)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen.config.settings import validated
from ragen.envs.base import Environment, EnvSettings
from ragen.envs.guard import constructed
from ragen.envs.locate import canonical, label, load, name_of, near_place
from ragen.errors import ConfigError, RagenError
from ragen.modules import told
from ragen.registry import Registry
from ragen.wording import either

Factory = Callable[[], Environment]


@dataclass(frozen=True, slots=True)
class EnvPreset:
    """A named variant of an environment: its class and the settings that differ from the class's defaults."""

    cls: type[Environment]
    about: str
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def settings(self, overrides: Mapping[str, Any]) -> EnvSettings:
        """The preset's settings with these on top; a wrong one is a ConfigError."""
        given = {**self.overrides, **overrides}
        texts = (key for key, field in self.cls.settings_class.model_fields.items() if field.annotation in (str, str | None))
        given |= {key: str(given[key]) for key in texts if type(given.get(key)) in (int, float)}  # as YAML took it
        return validated(self.cls.settings_class, given, prefix="env.")


@dataclass(frozen=True, slots=True)
class Made:
    """A factory that can be told to another process: the config's section ``env`` that names it."""

    make: Factory
    spec: Mapping[str, Any]

    def __call__(self) -> Environment:
        """A new environment."""
        return self.make()


environments: Registry[EnvPreset] = Registry(
    "environment", listing="`ragen envs`", fits=lambda part: isinstance(part, EnvPreset)
)


@dataclass(frozen=True, slots=True)
class Found:
    """An environment as a config's section ``env`` names it.

    ``name`` is short, for reports; ``spec`` is the section with the place in full, so that a later run finds it again.
    """

    name: str
    spec: Mapping[str, Any]
    make: Factory
    settings: EnvSettings


def find_environment(spec: Mapping[str, Any], source: object = None) -> Found:
    """The environment of a config's ``env`` section, or ``source`` passed by hand, made once and checked.

    ``source`` may be a class (made with the section's settings), a function that makes a new environment at each call, or
    an EnvPreset. Raises ConfigError with what to do for anything else, and for settings that nothing would take.
    """
    name = canonical(str(spec.get("name", "bandit"))) if source is None else name_of(source)
    overrides = {key: value for key, value in spec.items() if key != "name"}
    if source is None:
        source = load(name) if ":" in name else _registered(name)
    cls = source.cls if isinstance(source, EnvPreset) else source if isinstance(source, type) else None
    make, wanted = _factory(source, label(name), overrides)
    first, second = (_made(make, label(name), cls) for _ in range(2))
    if first is second:
        raise ConfigError(
            f"env '{label(name)}' gives the same object each time: episodes run side by side, so it must make a new one at "
            "each call (pass the class, or `lambda: Class(settings)`)"
        )
    if wanted is not None and first.settings != wanted:
        raise ConfigError(
            f"env.{next(iter(overrides), 'settings')} would be ignored: {type(first).__name__}.__init__ must take "
            "`settings` first and pass it to super().__init__(settings)"
        )
    full = {**spec, "name": name}
    return Found(label(name), full, Made(make, full), first.settings)


def environment_factory(spec: Mapping[str, Any]) -> Factory:
    """A function that makes the environment a config's ``env`` section names, checked now rather than at the first call."""
    return find_environment(spec).make


def _registered(name: str) -> EnvPreset:
    if name not in environments.names():
        environment, preset, _ = name.partition("-starpo")
        hint = f"that is a training preset; its environment is '{environment}'" if preset else near_place(name)
        if hint:
            raise ConfigError(f"unknown environment '{name}': {hint}")
    return environments.get(name)


def _factory(source: Any, name: str, overrides: Mapping[str, Any]) -> tuple[Factory, EnvSettings | None]:
    """How to make it, and the settings it must then have (None: its own)."""
    if isinstance(source, type) and issubclass(source, Environment):
        if not overrides:
            return source, None
        source = EnvPreset(source, "")
    if isinstance(source, EnvPreset):
        cls, settings = source.cls, source.settings(overrides)
        return lambda: cls(settings), settings
    if isinstance(source, type | Environment) or not callable(source):
        raise ConfigError(
            f"env is {source!r}: give an environment's name (`ragen envs`), a class that extends ragen.Environment, or a "
            "function that makes one"
        )
    if overrides:
        raise ConfigError(
            f"env.{next(iter(overrides))} is set, but '{name}' is a function, which makes environments with settings of its "
            "own: set them there, or pass the class"
        )
    return source, None


def _made(make: Factory, name: str, cls: type[Environment] | None) -> Environment:
    try:
        env = make()
    except RagenError:
        raise
    except (Exception, SystemExit) as error:  # one that leaves must not end the command as if it were done
        raise ConfigError(f"env '{name}' cannot be made: {_why(error, cls)}") from error
    if not isinstance(env, Environment):
        raise ConfigError(
            f"env '{name}' must make a ragen.Environment, got {type(env).__name__}: subclass ragen.Environment"
        )
    if not isinstance(getattr(env, "settings", None), EnvSettings):
        raise ConfigError(f"env '{name}' has no settings: call super().__init__(settings) in {type(env).__name__}.__init__")
    return env


def _why(error: BaseException, cls: type[Environment] | None) -> str:
    """Why an environment, of class ``cls`` where that is known, cannot be made, and what to do."""
    if missing := sorted(getattr(cls, "__abstractmethods__", ())):
        return f"{getattr(cls, '__name__', '')} must define {either(missing, 'and')}"
    known = constructed(error)
    if known is None and isinstance(error, TypeError) and "argument" in str(error):
        return (
            f"{told(error, cls)}. A class is made as Class() or Class(settings); for other arguments pass a function, such "
            "as lambda: Class(3)"
        )
    return told(error, known or cls)
