"""The shop: its pages and what leads from one to another, for any front end (the environment's text, a web page).

``Place`` says where a shopper is, ``Shop.page`` what is there: a frozen value that knows nothing of how it is shown.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from types import MappingProxyType
from typing import Literal

from ragen.envs.webshop.catalogue import Options, Product
from ragen.envs.webshop.goals import Goal, Kind, goal_count, goal_of
from ragen.envs.webshop.stock import Sources, Stock, stock_of, synthetic_stock
from ragen.envs.webshop.text import clean

PageKind = Literal["search", "results", "item", "description", "features", "reviews", "done"]
RESULTS, PER_PAGE = 50, 10
LONGEST_QUERY = 300  # characters; the rest is cut
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUBPAGES: Mapping[str, PageKind] = MappingProxyType(
    {"Description": "description", "Features": "features", "Reviews": "reviews"}
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shopper is. ``product`` is a number in the catalogue; ``chosen`` are (option, value), by option.

    Opening a product begins without options; Back to Search forgets query, product and options.
    """

    kind: PageKind = "search"
    query: str = ""
    number: int = 1
    product: int = -1
    chosen: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of an option on an item's page: the label that chooses it, and whether it is chosen."""

    value: str
    label: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class Page:
    """What a shopper sees.

    ``links`` leads from each label, in the order of the page, to the place that a click on it opens. Labels differ by
    more than case. ``results`` (label and product) with ``number`` and ``total`` belong to a page of results, ``product``
    to an item, its sub-pages and a purchase, ``options`` to an item.
    """

    kind: PageKind
    links: Mapping[str, Place]
    query: str = ""
    number: int = 1
    total: int = 0
    results: tuple[tuple[str, Product], ...] = ()
    product: Product | None = None
    options: tuple[tuple[str, tuple[Choice, ...]], ...] = ()
    chosen: tuple[tuple[str, str], ...] = ()

    @property
    def can_search(self) -> bool:
        """Whether there is a search bar."""
        return self.kind == "search"


class Shop:
    """The pages of a stock, ``per_page`` results a page. One shop serves any number of shoppers: it keeps no places."""

    def __init__(self, stock: Stock, per_page: int = PER_PAGE) -> None:
        self.stock, self.per_page = stock, per_page
        self.page = lru_cache(maxsize=4096)(self._page)
        self.results = lru_cache(maxsize=4096)(self._results)
        self.goal = lru_cache(maxsize=4096)(self._goal)

    def _goal(self, kind: Kind, number: int) -> Goal:
        """Goal ``number`` of a kind that the stock has: of product number mod P, its goal ⌊number / P⌋ modulo their count.

        P is the number of products with such goals: 0 … P − 1 meet each of them once, the next P their second goals.
        """
        wanted = self.stock.wanted[kind]
        turn, place = divmod(number, len(wanted))
        product = self.stock.catalogue[int(wanted[place])]
        return goal_of(product, kind, turn % goal_count(product, kind))

    def _results(self, query: str) -> tuple[int, ...]:
        """The products found for a query, best first, at most RESULTS."""
        return tuple(self.stock.index.search(query, RESULTS))

    def search(self, query: str) -> Place:
        """The first page of results for a query (as ``plain_query`` gives it)."""
        return Place("results", query)

    def _page(self, place: Place) -> Page:
        """What is at a place."""
        if place.kind == "search":
            return Page("search", {})
        if place.kind == "results":
            return self._results_page(place)
        product = self.stock.catalogue[place.product]
        if place.kind == "item":
            return _item_page(place, product)
        if place.kind == "done":
            return Page("done", {BACK: Place()}, product=product, chosen=place.chosen)
        links = {BACK: Place(), PREVIOUS: replace(place, kind="item")}
        return Page(place.kind, links, product=product, chosen=place.chosen)

    def _results_page(self, place: Place) -> Page:
        found = self.results(place.query)
        begin, end = (place.number - 1) * self.per_page, place.number * self.per_page
        shown = [(number, self.stock.catalogue[number]) for number in found[begin:end]]
        links = {BACK: Place()}
        if place.number > 1:
            links[PREVIOUS] = replace(place, number=place.number - 1)
        if end < len(found):
            links[NEXT] = replace(place, number=place.number + 1)
        links |= {product.asin: replace(place, kind="item", product=number) for number, product in shown}
        entries = tuple((product.asin, product) for _, product in shown)
        return Page("results", links, place.query, place.number, len(found), entries)


def _item_page(place: Place, product: Product) -> Page:
    chosen = dict(place.chosen)
    links = {BACK: Place(), PREVIOUS: replace(place, kind="results", product=-1, chosen=())}
    options = []
    for name, values in option_labels(product.options):
        options.append((name, tuple(Choice(value, label, chosen.get(name) == value) for value, label in values)))
        links |= {label: replace(place, chosen=_with(product, chosen, name, value)) for value, label in values}
    links |= {label: replace(place, kind=kind) for label, kind in SUBPAGES.items()}
    links[BUY] = replace(place, kind="done")
    return Page("item", links, place.query, place.number, product=product, options=tuple(options), chosen=place.chosen)


def _with(product: Product, chosen: Mapping[str, str], name: str, value: str) -> tuple[tuple[str, str], ...]:
    """The choices with one more, which replaces another of the same option; in the product's order."""
    new = {**chosen, name: value}
    return tuple((option, new[option]) for option, _ in product.options if option in new)


@lru_cache(maxsize=8)
def open_shop(sources: Sources | None, size: int, seed: int, per_page: int = PER_PAGE) -> Shop:
    """The shop of these files, or of a made-up catalogue of ``size`` products where there are none; once a process."""
    return Shop(_stock(sources, size, seed), per_page)


@lru_cache(maxsize=4)
def _stock(sources: Sources | None, size: int, seed: int) -> Stock:
    return synthetic_stock(size, seed) if sources is None else stock_of(sources)


@lru_cache(maxsize=4096)
def option_labels(options: Options) -> tuple[tuple[str, tuple[tuple[str, str], ...]], ...]:
    """For each option its values with the label of each: the value, or ``name: value`` where that is another's label."""
    taken = {label.casefold() for label in (BACK, PREVIOUS, NEXT, BUY, *SUBPAGES)}
    out = []
    for name, values in options:
        labelled = []
        for value in dict.fromkeys(values):
            label = next(each for each in _candidates(name, value) if each.casefold() not in taken)
            taken.add(label.casefold())
            labelled.append((value, label))
        out.append((name, tuple(labelled)))
    return tuple(out)


def _candidates(name: str, value: str) -> Iterator[str]:
    yield value
    yield f"{name}: {value}"
    yield from (f"{name}: {value} ({number})" for number in count(2))


def plain_query(text: str) -> str:
    """A search text as the shop keeps it: clean, in lower case, at most LONGEST_QUERY characters."""
    return clean(text.lower())[:LONGEST_QUERY].rstrip()
