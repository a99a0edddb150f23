"""Sudoku grids: solving by search, and puzzles with one solution."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ragen.errors import ConfigError
from ragen.seeding import derive, generator

Grid = tuple[int, ...]  # row by row; 0 = blank
TRIES = 50  # full grids drawn at most until so many cells can be blanked


@lru_cache(maxsize=4)
def peers(size: int) -> tuple[frozenset[int], ...]:
    """Of each cell, the other cells in its row, column and box."""
    box = round(size**0.5)
    places = [divmod(cell, size) for cell in range(size * size)]
    units = [{("row", row), ("column", column), ("box", row // box, column // box)} for row, column in places]
    return tuple(
        frozenset(other for other, theirs in enumerate(units) if other != cell and own & theirs)
        for cell, own in enumerate(units)
    )


def candidates(grid: Sequence[int], size: int, cell: int) -> set[int]:
    """The digits that no peer of the cell has."""
    return set(range(1, size + 1)) - {grid[peer] for peer in peers(size)[cell]}


def solutions(grid: Sequence[int], size: int, *, limit: int, rng: np.random.Generator | None = None) -> list[Grid]:
    """The first ``limit`` full grids that agree with ``grid``: always the blank with the fewest candidates is tried next.

    With a generator the digits are tried in random order.
    """
    found: list[Grid] = []
    work = list(grid)

    def search() -> None:
        options = {cell: candidates(work, size, cell) for cell, digit in enumerate(work) if not digit}
        if not options:
            found.append(tuple(work))
            return
        cell = min(options, key=lambda blank: len(options[blank]))
        digits = sorted(options[cell])
        for digit in digits if rng is None else rng.permutation(digits).tolist():
            work[cell] = digit
            search()
            if len(found) >= limit:
                break
        work[cell] = 0

    search()
    return found


@lru_cache(maxsize=4096)
def make_puzzle(seed: int, size: int, blanks: int) -> tuple[Grid, Grid]:
    """A puzzle with exactly ``blanks`` blanks and one solution, and the solution.

    Cells of a random full grid are blanked in random order, each only if the solution stays the only one; ConfigError where
    that does not give enough blanks, in TRIES grids.
    """
    rng = generator(derive(seed, "sudoku", "puzzle"))
    for _ in range(TRIES):
        (full,) = solutions((0,) * (size * size), size, limit=1, rng=rng)
        puzzle = list(full)
        for cell in rng.permutation(size * size).tolist():
            if puzzle.count(0) == blanks:
                break
            puzzle[cell] = 0
            if len(solutions(puzzle, size, limit=2)) > 1:
                puzzle[cell] = full[cell]
        if puzzle.count(0) == blanks:
            return tuple(puzzle), full
    raise ConfigError(
        f"sudoku: no {size} × {size} puzzle with env.blanks {blanks} and one solution in {TRIES} grids: lower env.blanks"
    )
