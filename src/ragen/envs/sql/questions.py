"""Questions about a database, each with the SQL that answers it; what two answers must have in common to be equal."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ragen.envs.sql.schemas import Database, literal
from ragen.envs.sql.themes import Table

LEVELS = (1, 2, 3)
PLACES = 6  # decimal places to which numbers are compared


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its SQL, and whether it asks for an order."""

    text: str
    sql: str
    ordered: bool = False


Maker = Callable[[Database, np.random.Generator], Question]


def make_question(database: Database, rng: np.random.Generator, levels: Sequence[int]) -> Question:
    """Draw a question of one of these levels: 1 one table, 2 groups and extremes, 3 both tables."""
    makers = [maker for level in levels for maker in MAKERS[level]]
    return makers[int(rng.integers(len(makers)))](database, rng)


def same_rows(one: Sequence[Sequence[Any]], other: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    """Whether two results hold the same rows as often (multisets), and where it is asked for in the same order.

    Columns count in their order, their names do not. Numbers are equal to ``PLACES`` decimal places, 2 and 2.0 alike.

    >>> same_rows([(1, "a"), (2.0, "b")], [(2, "b"), (1, "a")], ordered=False)
    True
    """
    first, second = ([tuple(map(_plain, row)) for row in rows] for rows in (one, other))
    return first == second if ordered else Counter(first) == Counter(second)


def _plain(value: Any) -> tuple[str, Any]:
    if isinstance(value, int | float):
        number = float(value)
        return "number", round(number, PLACES) + 0.0 if math.isfinite(number) else str(number)
    return type(value).__name__, value


def _either(database: Database, rng: np.random.Generator) -> tuple[Table, Sequence[Sequence[Any]]]:
    if int(rng.integers(2)):
        return database.theme.parent, database.parents
    return database.theme.child, database.children


def _bound(rows: Sequence[Sequence[Any]], rng: np.random.Generator) -> int:
    """A number of the table that leaves rows on both sides where it can: neither the least nor the greatest."""
    numbers = sorted({row[2] for row in rows})
    inner = numbers[1:-1] or numbers
    return int(inner[int(rng.integers(len(inner)))])


def _kind(rows: Sequence[Sequence[Any]], rng: np.random.Generator) -> str:
    kinds = sorted({row[3] for row in rows})
    return str(kinds[int(rng.integers(len(kinds)))])


def _count(database: Database, rng: np.random.Generator) -> Question:
    table, rows = _either(database, rng)
    kind = _kind(rows, rng)
    return Question(
        f"How many {table.name} have the {table.category.noun} '{kind}'?",
        f"SELECT COUNT(*) FROM {table.name} WHERE {table.category.name} = {literal(kind)}",
    )


def _compare(database: Database, rng: np.random.Generator) -> Question:
    table, rows = _either(database, rng)
    bound = _bound(rows, rng)
    words, sign = (("greater", ">"), ("less", "<"))[int(rng.integers(2))]
    return Question(
        f"What are the names of the {table.name} whose {table.number.noun} is {words} than {bound}?",
        f"SELECT name FROM {table.name} WHERE {table.number.name} {sign} {bound}",
    )


def _total(database: Database, rng: np.random.Generator) -> Question:
    table, rows = _either(database, rng)
    word, function = (("total", "SUM"), ("average", "AVG"), ("greatest", "MAX"), ("least", "MIN"))[int(rng.integers(4))]
    kind = _kind(rows, rng)
    return Question(
        f"What is the {word} {table.number.noun} of the {table.name} with the {table.category.noun} '{kind}'?",
        f"SELECT {function}({table.number.name}) FROM {table.name} WHERE {table.category.name} = {literal(kind)}",
    )


def _sort(database: Database, rng: np.random.Generator) -> Question:
    table, _ = _either(database, rng)
    words, direction = (("least to greatest", ""), ("greatest to least", " DESC"))[int(rng.integers(2))]
    return Question(
        f"List the names of all {table.name} by {table.number.noun}, from {words}; equal ones by name.",
        f"SELECT name FROM {table.name} ORDER BY {table.number.name}{direction}, name",
        ordered=True,
    )


def _groups(database: Database, rng: np.random.Generator) -> Question:
    table, _ = _either(database, rng)
    return Question(
        f"Give each {table.category.noun} of {table.name} and how many {table.name} have it.",
        f"SELECT {table.category.name}, COUNT(*) FROM {table.name} GROUP BY {table.category.name}",
    )


def _extreme(database: Database, rng: np.random.Generator) -> Question:
    table, _ = _either(database, rng)
    word, function = (("greatest", "MAX"), ("least", "MIN"))[int(rng.integers(2))]
    column = table.number.name
    return Question(
        f"Which {table.one} has the {word} {table.number.noun}? Give the name, or all names that share it.",
        f"SELECT name FROM {table.name} WHERE {column} = (SELECT {function}({column}) FROM {table.name})",
    )


def _having(database: Database, rng: np.random.Generator) -> Question:
    table, rows = database.theme.child, database.children
    counts = sorted(Counter(row[3] for row in rows).values())
    least = counts[int(rng.integers(len(counts)))]
    column = table.category.name
    return Question(
        f"Give each {table.category.noun} that at least {least} of the {table.name} have.",
        f"SELECT {column} FROM {table.name} GROUP BY {column} HAVING COUNT(*) >= {least}",
    )


def _top(database: Database, rng: np.random.Generator) -> Question:
    table, rows = database.theme.child, database.children
    count = 2 + int(rng.integers(max(1, min(3, len(rows) - 1))))
    return Question(
        f"Give name and {table.number.noun} of the {count} {table.name} with the greatest {table.number.noun}, the greatest "
        "first; equal ones by name.",
        f"SELECT name, {table.number.name} FROM {table.name} ORDER BY {table.number.name} DESC, name LIMIT {count}",
        ordered=True,
    )


def _joined(database: Database, rng: np.random.Generator) -> Question:
    parent, child, key = database.theme.parent, database.theme.child, database.theme.key
    kind = _kind(database.parents, rng)
    return Question(
        f"What are the names of the {child.name} that belong to {parent.name} with the {parent.category.noun} '{kind}'?",
        f"SELECT c.name FROM {child.name} c JOIN {parent.name} p ON c.{key} = p.id "
        f"WHERE p.{parent.category.name} = {literal(kind)}",
    )


def _count_each(database: Database, rng: np.random.Generator) -> Question:
    del rng
    parent, child, key = database.theme.parent, database.theme.child, database.theme.key
    return Question(
        f"Give the name of each {parent.one} and how many {child.name} belong to it, also where it is 0.",
        f"SELECT p.name, COUNT(c.id) FROM {parent.name} p LEFT JOIN {child.name} c ON c.{key} = p.id GROUP BY p.id",
    )


def _without(database: Database, rng: np.random.Generator) -> Question:
    parent, child, key = database.theme.parent, database.theme.child, database.theme.key
    kind = _kind(database.children, rng)
    return Question(
        f"What are the names of the {parent.name} to which no {child.one} with the {child.category.noun} '{kind}' belongs?",
        f"SELECT name FROM {parent.name} WHERE id NOT IN "
        f"(SELECT {key} FROM {child.name} WHERE {child.category.name} = {literal(kind)})",
    )


def _joined_total(database: Database, rng: np.random.Generator) -> Question:
    parent, child, key = database.theme.parent, database.theme.child, database.theme.key
    bound = _bound(database.parents, rng)
    word, function = (("total", "SUM"), ("average", "AVG"), ("greatest", "MAX"))[int(rng.integers(3))]
    return Question(
        f"What is the {word} {child.number.noun} of the {child.name} that belong to {parent.name} whose "
        f"{parent.number.noun} is at least {bound}?",
        f"SELECT {function}(c.{child.number.name}) FROM {child.name} c JOIN {parent.name} p ON c.{key} = p.id "
        f"WHERE p.{parent.number.name} >= {bound}",
    )


def _most(database: Database, rng: np.random.Generator) -> Question:
    del rng
    parent, child, key = database.theme.parent, database.theme.child, database.theme.key
    counts = f"SELECT {key}, COUNT(*) AS n FROM {child.name} GROUP BY {key}"
    return Question(
        f"Which {parent.one} do most {child.name} belong to? Give the name, or all names that share it.",
        f"SELECT p.name FROM {parent.name} p JOIN ({counts}) k ON k.{key} = p.id "
        f"WHERE k.n = (SELECT MAX(n) FROM ({counts}))",
    )


MAKERS: dict[int, tuple[Maker, ...]] = {
    1: (_count, _compare, _total, _sort),
    2: (_groups, _extreme, _having, _top),
    3: (_joined, _count_each, _without, _joined_total, _most),
}
