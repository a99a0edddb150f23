"""Named parts: registered where they are defined, or by outside packages through entry points."""

from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from importlib.metadata import entry_points
from typing import Generic, TypeVar

from ragen.errors import ConfigError

T = TypeVar("T")


FEW, MANY = 3, 15  # names in a hint: of those that are merely likely, and of a whole list


def likeliest(name: str, known: Iterable[str]) -> list[str]:
    """A few known names, those that hold the text ``name`` first, then those that are most like it."""
    text = name.casefold()

    def unlikeness(each: str) -> tuple[bool, float]:
        return text not in each.casefold(), -SequenceMatcher(None, text, each.casefold()).ratio()

    return sorted(known, key=unlikeness)[:FEW]


def nearest(name: str, known: list[str], listing: str = "") -> str:
    """A short hint for an unknown name: the closest known one; where none is close, ``listing`` (how to list all) or all.

    Of very many, and no way to list them, the likeliest few.
    """
    folded = {each.casefold(): each for each in known}
    close = get_close_matches(name.casefold(), list(folded), n=1, cutoff=0.7)
    if close:
        return f"did you mean '{folded[close[0]]}'?"
    if listing:
        return f"{listing} lists all"
    shown = sorted(known) if len(known) <= MANY else [*likeliest(name, known), f"… ({len(known)} in all)"]
    return f"known: {', '.join(shown)}"


class Registry(Generic[T]):
    """Maps names to parts of one kind; entry points of group ``ragen.<kind>s`` are loaded on the first miss.

    ``listing`` is how to list them all, ``own`` what makes one of a user's own known: both are told of an unknown name.
    """

    def __init__(self, kind: str, plural: str | None = None, listing: str = "", own: str = "") -> None:
        self.kind, self.listing, self.own = kind, listing, own
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
            own = f" One of your own is known once {self.own}." if self.own else ""
            hint = nearest(name, list(self._items), self.listing)
            raise ConfigError(f"unknown {self.kind} '{name}': {hint}{'.' * (own != '' and hint[-1] != '?')}{own}")
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
