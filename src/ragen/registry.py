"""Named parts: registered where they are defined, or by outside packages through entry points."""

from collections.abc import Callable, Iterable, Iterator
from difflib import SequenceMatcher, get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from ragen.errors import ConfigError

T = TypeVar("T")


OWN_RULE = (
    "plugins names its file, its module is imported, or a package with its entry point is installed (docs/rules/README.md)"
)
"""What makes a rule (an advantage estimator, a loss) of a user's own known."""
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


def at_most(first: Iterable[str], total: int, what: str) -> list[str]:
    """The ``first`` lines of ``total``, and a line that tells how many more there are.

    >>> at_most(["a", "b"], 20_000, "unknown settings")
    ['a', 'b', '… and 19,998 more unknown settings']
    """
    lines = list(first)
    return lines + ([f"… and {total - len(lines):,} more {what}"] if total > len(lines) else [])


def unknown_part(kind: str, name: str, known: Iterable[str], listing: str = "", own: str = "") -> str:
    """The message for a name that is none of the ``known`` ones of a kind; the other arguments are as in ``Registry``."""
    told = f" One of your own is known once {own}." if own else ""
    hint = nearest(name, list(known), listing)
    return f"unknown {kind} '{name}': {hint}{'.' * (told != '' and hint[-1] != '?')}{told}"


class Registry(Generic[T]):
    """Maps names to parts of one kind; entry points of group ``ragen.<kind>s`` are loaded on the first miss.

    ``listing`` is how to list them all, ``own`` what makes one of a user's own known: both are told of an unknown name.
    ``fits`` says whether something is a part of this kind.
    """

    def __init__(
        self,
        kind: str,
        plural: str | None = None,
        listing: str = "",
        own: str = "",
        fits: Callable[[object], bool] = callable,
    ) -> None:
        self.kind, self.listing, self.own, self.fits = kind, listing, own, fits
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
            raise ConfigError(unknown_part(self.kind, name, self._items, self.listing, self.own))
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
        try:
            for point in entry_points(group=self.group):
                self._take(point)
        except BaseException:
            self._entry_points_loaded = False  # said again at the next look
            raise

    def _take(self, point: EntryPoint) -> None:
        """Load an entry point: it is a part itself, or loading it registers one of its name."""
        told = f"the entry point '{point.name}' ({point.value}) of the group '{self.group}'"
        try:
            loaded = point.load()
        except (Exception, SystemExit) as error:
            raise ConfigError(
                f"{told} cannot be loaded: {type(error).__name__}: {error}; mend or uninstall its package"
            ) from error
        if point.name in self._items:
            return
        others = [name for name, item in self._items.items() if loaded is item or loaded is getattr(item, "compute", item)]
        if others:
            raise ConfigError(
                f"{told} loads what is registered as '{others[0]}': the two names must be the same, so name the entry point "
                f"'{others[0]}', or register it as '{point.name}'"
            )
        if not self.fits(loaded):
            raise ConfigError(
                f"{told} gives a {type(loaded).__name__}, which is no {self.kind}, and registers none as '{point.name}'"
                f"{f'. One of your own is known once {self.own}' if self.own else ''}"
            )
        self._items[point.name] = loaded
