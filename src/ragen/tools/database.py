"""SQL over a database that cannot be changed, with bounds on work, sizes and rows."""

import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError
from ragen.tools.function import ToolError

READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
BARRED_FUNCTIONS = ("load_extension", "randomblob", "random", "zeroblob", "fts3_tokenizer", "readfile", "writefile", "edit")
LARGEST_VALUE = 100_000  # bytes of one value, and of a statement
LARGEST_ANSWER = 10_000_000  # characters and bytes of an answer's values: a row of 2,000 columns could hold 200 million
CELL = 200  # characters of a value that are shown
STEPS_BETWEEN_LOOKS = 1000  # instructions of SQLite's virtual machine


@dataclass(frozen=True, slots=True)
class Table:
    """A query's rows in the order they came; ``cut`` says that there are more."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool

    def shown(self) -> str:
        """A line of column names, a line a row; values between bars, each on one line and bounded."""
        lines = [" | ".join(self.columns), *(" | ".join(map(_cell, row)) for row in self.rows)]
        if self.cut:
            lines.append(f"… [cut: the first {len(self.rows)} rows]")
        elif not self.rows:
            lines.append("[no rows]")
        return "\n".join(lines)


class ReadOnlyDatabase:
    """An SQLite database to ask and never to change.

    The walls: an authoriser that allows nothing but reading tables and calling functions (so no ATTACH, PRAGMA, writing or
    temporary table; functions that load code, reach files or draw chance are barred), ``mode=ro`` for a file, and SQLite's
    own limits on sizes, with one on all values of an answer. Work is bounded in instructions, so that the same query ends
    the same way on every machine; the clock is a second bound, for instructions that take long.

    Args:
        source: statements that build a database in memory, or the path of a file.
        max_rows: rows of an answer at most.
        max_steps: instructions of SQLite's virtual machine a query may take (10 million are about 0.1 s … 1 s).
        max_seconds: the second bound.

    Raises:
        ConfigError: the file is no SQLite database, or the statements do not run.
    """

    def __init__(
        self, source: str | Path, *, max_rows: int = 50, max_steps: int = 10_000_000, max_seconds: float = 5.0
    ) -> None:
        self._max_rows, self._max_steps, self._max_seconds = max_rows, max_steps, max_seconds
        self._connection = _opened(source)
        limits = (sqlite3.SQLITE_LIMIT_LENGTH, sqlite3.SQLITE_LIMIT_SQL_LENGTH)
        for limit, value in (*((each, LARGEST_VALUE) for each in limits), (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 100)):
            self._connection.setlimit(limit, value)
        self._connection.set_authorizer(_authorise)
        self.close = weakref.finalize(self, self._connection.close)  # at the latest when nothing refers to it any more

    def query(self, sql: str) -> Table:
        """The rows of one SELECT statement; ToolError says why there are none."""
        with self._bounded() as why:
            try:
                cursor = self._connection.execute(sql)
                rows = _bounded_rows(cursor, self._max_rows + 1)
            except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as error:  # a NUL or a surrogate: ValueError
                raise ToolError(why() or _told(error)) from None
        columns = tuple(_cell(column[0]) for column in cursor.description or ())
        if not columns:
            raise ToolError("only a SELECT statement gives rows")
        return Table(columns, tuple(rows[: self._max_rows]), cut=len(rows) > self._max_rows)

    @contextmanager
    def _bounded(self) -> Iterator[Callable[[], str]]:
        """Within, SQLite stops at the bounds; the function given tells which one it was, empty for none."""
        looks, until = 0, time.monotonic() + self._max_seconds
        reason = ""

        def look() -> bool:
            nonlocal looks, reason
            looks += 1
            if looks * STEPS_BETWEEN_LOOKS > self._max_steps:
                reason = f"the query takes too long (more than {self._max_steps} steps)"
            elif time.monotonic() > until:
                reason = f"the query takes too long (more than {self._max_seconds:g} s)"
            return bool(reason)

        self._connection.set_progress_handler(look, STEPS_BETWEEN_LOOKS)
        try:
            yield lambda: reason
        finally:
            self._connection.set_progress_handler(None, 0)


def _opened(source: str | Path) -> sqlite3.Connection:
    """A connection to a file, or to what statements build in memory.

    Whether a file is a database shows at the first look into it, which must not be an agent's query.
    """
    path, script = (source, "SELECT 1 FROM sqlite_master;") if isinstance(source, Path) else (None, source)
    place = ":memory:" if path is None else f"{path.resolve().as_uri()}?mode=ro"
    connection = None
    try:
        connection = sqlite3.connect(place, uri=path is not None, check_same_thread=False)
        connection.executescript(script)
        connection.commit()
    except sqlite3.Error as error:
        if connection is not None:
            connection.close()
        if path is not None:
            raise ConfigError(f"the database '{path}' cannot be read ({error}): give the path of an SQLite file") from None
        raise ConfigError(
            f"the statements of a database do not run ({error}): mend them; for a file give a pathlib.Path"
        ) from None
    return connection


def _authorise(action: int, first: str | None, second: str | None, database: str | None, trigger: str | None) -> int:
    del first, database, trigger
    if action in READING or (action == sqlite3.SQLITE_FUNCTION and second not in BARRED_FUNCTIONS):
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _bounded_rows(cursor: sqlite3.Cursor, most: int) -> list[tuple[Any, ...]]:
    """The first ``most`` rows, taken one by one: ToolError as soon as their values are too large together."""
    rows, size = [], 0
    for row in islice(cursor, most):
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if size > LARGEST_ANSWER:
            raise ToolError(f"the rows are too large: they may hold {LARGEST_ANSWER} characters in all")
        rows.append(row)
    return rows


def _told(error: Exception) -> str:
    if str(error) == "not authorized":
        return "not allowed: the database can only be read, by SELECT"
    return str(error)


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:.12g}"
    text = " ".join(str(value).splitlines()) if isinstance(value, str) else str(value)
    return text if len(text) <= CELL else f"{text[:CELL]}…"
