"""Named parts: registered where they are defined, or by outside packages through entry points."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from ragen.errors import ConfigError

T = TypeVar("T")


def nearest(name: str, known: list[str], listing: str = "") -> str:
    """A short hint for an unknown name: the closest known one; where none is close, ``listing`` (how to list all) or all."""
    close = get_close_matches(name, known, n=1, cutoff=0.7)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"{listing} lists all" if listing else f"known: {', '.join(sorted(known))}"


class Registry(Generic[T]):
    """Maps names to parts of one kind; entry points of group ``ragen.<kind>s`` are loaded on the first miss."""

    def __init__(self, kind: str, plural: str | None = None, listing: str = "") -> None:
        self.kind, self.listing = kind, listing
        self.group = f"ragen.{plural or kind + 's'}"
        self._items: dict[str, T] = {}
        self._entry_points_loaded = False

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a part; the same name twice is an error."""

        def add(item: T) -> T:
            if self._items.setdefault(name, item) is not item:
                raise ConfigError(f"{self.kind} '{name}' is registered twice; choose another name")
            return item

        return add

    def get(self, name: str) -> T:
        """The part of this name; an unknown one is a ConfigError with the nearest name."""
        if name not in self._items:
            self._load_entry_points()
        if name not in self._items:
            raise ConfigError(f"unknown {self.kind} '{name}': {nearest(name, list(self._items), self.listing)}")
        return self._items[name]

    def names(self) -> list[str]:
        """All names, sorted, those of outside packages included."""
        self._load_entry_points()
        return sorted(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _load_entry_points(self) -> None:
        if self._entry_points_loaded:
            return
        self._entry_points_loaded = True
        for point in entry_points(group=self.group):
            self._items.setdefault(point.name, point.load())
