"""Made-up articles about places, people, companies and rivers that do not exist, from a fixed seed."""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from ragen.seeding import derive, generator
from ragen.tools.search import Document

COUNT = 400
FIRST = (
    "Ada",
    "Bela",
    "Cyril",
    "Dora",
    "Edda",
    "Franz",
    "Greta",
    "Hilda",
    "Ivan",
    "Jonas",
    "Karla",
    "Linus",
    "Mila",
    "Otto",
)
BEGINS = (
    "Bar",
    "Cal",
    "Dor",
    "El",
    "Fen",
    "Gal",
    "Hol",
    "Is",
    "Kar",
    "Lor",
    "Mar",
    "Nor",
    "Os",
    "Pel",
    "Ros",
    "Sil",
    "Tor",
    "Vel",
)
MIDDLES = ("a", "e", "i", "o", "an", "en", "in", "or", "ul", "ast", "ev", "im")
ENDS = ("ville", "mond", "dale", "burg", "stead", "wick", "ford", "ham", "holm", "mark", "nau", "rin")
TRADES = ("glass", "paper", "clocks", "bicycles", "lamps", "boots", "maps", "violins")
FIELDS = ("chemist", "painter", "architect", "botanist", "composer", "engineer", "historian", "surgeon")


@lru_cache(maxsize=1)
def articles() -> tuple[Document, ...]:
    """``COUNT`` articles of four kinds; each names facts that only it holds: years, numbers and names."""
    rng = generator(derive(0, "wiki", "articles"))
    names = _names(rng)
    kinds = (_town, _person, _company, _river)
    return tuple(kinds[number % len(kinds)](next(names), names, rng) for number in range(COUNT))


def _names(rng: np.random.Generator) -> Iterator[str]:
    """Invented names, none of them twice."""
    every = [f"{begin}{middle}{end}" for begin in BEGINS for middle in MIDDLES for end in ENDS]
    yield from (every[int(index)] for index in rng.permutation(len(every)))


def _town(name: str, names: Iterator[str], rng: np.random.Generator) -> Document:
    people, year, height = int(rng.integers(900, 90_000)), _year(rng), int(rng.integers(5, 900))
    return Document(
        name,
        f"{name} is a town on the river {next(names)} at a height of {height} metres. The first settlers came in {year} "
        f"with {_person_name(next(names), rng)} as their leader. The town has {people:,} inhabitants and "
        f"{int(rng.integers(2, 40))} schools. Its market was opened in {year + int(rng.integers(20, 90))} by the "
        f"merchants of {next(names)}.",
    )


def _person(name: str, names: Iterator[str], rng: np.random.Generator) -> Document:
    full, year = _person_name(name, rng), _year(rng)
    return Document(
        full,
        f"{full} was a {_one(FIELDS, rng)} who was born in {year} in the village of {next(names)}. At the age of "
        f"{int(rng.integers(17, 40))} the young scholar moved to {next(names)} and studied there with "
        f"{_person_name(next(names), rng)}. The collected letters fill {int(rng.integers(3, 30))} volumes and were printed "
        f"in {year + int(rng.integers(60, 99))}.",
    )


def _company(name: str, names: Iterator[str], rng: np.random.Generator) -> Document:
    year = _year(rng)
    return Document(
        f"{name} Works",
        f"{name} Works is a company that makes {_one(TRADES, rng)} in the city of {next(names)}. The founder "
        f"{_person_name(next(names), rng)} opened the first hall in {year} with {int(rng.integers(3, 60))} workers. Today "
        f"the company employs {int(rng.integers(1000, 30_000)):,} people in {int(rng.integers(2, 25))} countries. "
        f"In {year + int(rng.integers(10, 80))} it bought its rival from {next(names)}.",
    )


def _river(name: str, names: Iterator[str], rng: np.random.Generator) -> Document:
    return Document(
        f"{name} River",
        f"The {name} River rises near the hill of {next(names)} and is {int(rng.integers(40, 1900)):,} kilometres long. "
        f"Its largest bridge was built in {_year(rng)} by the engineer {_person_name(next(names), rng)}. Ships can use the "
        f"lower {int(rng.integers(12, 39))} kilometres, and {int(rng.integers(3, 19))} dams hold its water back "
        f"below {next(names)}.",
    )


def _person_name(family: str, rng: np.random.Generator) -> str:
    return f"{_one(FIRST, rng)} {family}"


def _one(words: tuple[str, ...], rng: np.random.Generator) -> str:
    return words[int(rng.integers(len(words)))]


def _year(rng: np.random.Generator) -> int:
    return int(rng.integers(1500, 1930))
