"""Pure functions registered by name, which say by their signature what they need."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from torch import Tensor

from ragen.registry import Registry

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rule(Generic[T]):
    """A pure function of arrays: its positional parameters tell what it ``needs``, keyword-only ones its ``settings``.

    ``traits`` are what else must be known of it before it runs.
    """

    compute: Callable[..., T]
    needs: tuple[str, ...]
    settings: tuple[str, ...]
    traits: frozenset[str] = frozenset()

    def __call__(self, arrays: Mapping[str, Tensor], settings: Mapping[str, Any]) -> T:
        """Compute with those of the arrays that it needs, and those of the settings that are its own.

        Raises ValueError where an array is missing.
        """
        missing = [name for name in self.needs if name not in arrays]
        if missing:
            raise ValueError(f"{getattr(self.compute, '__name__', 'the rule')} needs {', '.join(missing)}")
        own = {name: settings[name] for name in self.settings if name in settings}
        return self.compute(*(arrays[name] for name in self.needs), **own)

    def defaults(self) -> dict[str, Any]:
        """The defaults that its signature gives its settings."""
        parameters = inspect.signature(self.compute).parameters
        return {
            name: parameters[name].default
            for name in self.settings
            if parameters[name].default is not inspect.Parameter.empty
        }


def is_rule(part: object) -> bool:
    """Whether it is a rule, which a bare function is not before it is registered."""
    return isinstance(part, Rule)


def registered(registry: Registry[Rule[T]], name: str, *traits: str) -> Callable[[F], F]:
    """Decorator that registers a function as a rule of this name."""

    def add(compute: F) -> F:
        parameters = inspect.signature(compute).parameters.values()
        needs = tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        settings = tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
        registry.register(name)(Rule(compute, needs, settings, frozenset(traits)))
        return compute

    return add
