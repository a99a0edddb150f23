"""Databases made from a seed: a parent table and a child table of a theme, with rows drawn at random."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ragen.envs.sql.themes import THEMES, Table, Theme

Value = int | str
Rows = tuple[tuple[Value, ...], ...]


@dataclass(frozen=True, slots=True)
class Database:
    """A theme with rows: each row is (id, name, number, category), a child's also the id of its parent."""

    theme: Theme
    parents: Rows
    children: Rows

    @property
    def script(self) -> str:
        """The statements that build it."""
        statements = [f"CREATE TABLE {line};" for line in self.layout]
        for table, rows in ((self.theme.parent, self.parents), (self.theme.child, self.children)):
            statements += [f"INSERT INTO {table.name} VALUES ({', '.join(map(literal, row))});" for row in rows]
        return "\n".join(statements)

    @property
    def layout(self) -> tuple[str, str]:
        """Both tables as ``name(column type, …)``."""
        parent, child = self.theme.parent, self.theme.child
        return (
            f"{parent.name}({_columns(parent)})",
            f"{child.name}({_columns(child)}, {self.theme.key} INTEGER REFERENCES {parent.name}(id))",
        )


def literal(value: Value) -> str:
    """A value as SQL has it.

    >>> literal("O'Hara"), literal(3)
    ("'O''Hara'", '3')
    """
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def make_database(rng: np.random.Generator, rows: int) -> Database:
    """Draw a theme and its rows: ``rows`` children of a third as many parents, some of which may have none."""
    theme = THEMES[int(rng.integers(len(THEMES)))]
    return Database(theme, *fill(theme, rng, rows))


def fill(theme: Theme, rng: np.random.Generator, rows: int) -> tuple[Rows, Rows]:
    """The rows of both tables of a theme."""
    count = max(2, rows // 3)
    parents = tuple(_rows(rng, theme.parent, count))
    owners = rng.integers(1, count + 1, size=rows)
    children = tuple((*row, int(owner)) for row, owner in zip(_rows(rng, theme.child, rows), owners, strict=True))
    return parents, children


def _rows(rng: np.random.Generator, table: Table, count: int) -> Iterator[tuple[Value, ...]]:
    """Rows with ids from 1, each name as often as another."""
    order = rng.permutation(len(table.names))
    numbers = rng.integers(table.number.least, table.number.most + 1, size=count)
    kinds = rng.integers(len(table.category.values), size=count)
    for i in range(count):
        name = table.names[int(order[i % len(order)])]
        yield i + 1, name, int(numbers[i]), table.category.values[int(kinds[i])]


def _columns(table: Table) -> str:
    return f"id INTEGER, name TEXT, {table.number.name} INTEGER, {table.category.name} TEXT"
