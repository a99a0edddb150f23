"""FrozenLake's rules: cells, moves and slips, with gymnasium's direction ids (0 left, 1 down, 2 right, 3 up)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

LEFT, DOWN, RIGHT, UP = range(4)


@dataclass(frozen=True, slots=True)
class Lake:
    """A map: cells are numbered row by row from the top left; start and goal are frozen and distinct."""

    size: int
    holes: frozenset[int]
    start: int
    goal: int

    def rows(self) -> tuple[str, ...]:
        """The map in gymnasium's letters, one string a row: S start, F frozen, H hole, G goal."""
        letters = ["H" if cell in self.holes else "F" for cell in range(self.size**2)]
        letters[self.start], letters[self.goal] = "S", "G"
        return tuple("".join(letters[row * self.size : (row + 1) * self.size]) for row in range(self.size))

    @classmethod
    def from_rows(cls, rows: Sequence[str]) -> "Lake":
        """The inverse of ``rows`` for a square map with one S and one G."""
        text = "".join(rows)
        if len(text) != len(rows) ** 2 or text.count("S") != 1 or text.count("G") != 1 or set(text) - set("SFHG"):
            raise ValueError(f"a map is square, of the letters S F H G with one S and one G; got {list(rows)}")
        holes = frozenset(cell for cell, letter in enumerate(text) if letter == "H")
        return cls(len(rows), holes, text.index("S"), text.index("G"))


@lru_cache
def neighbours(size: int) -> tuple[tuple[int, int, int, int], ...]:
    """For each cell, where a move left, down, right and up leads (off the grid: nowhere)."""
    table = []
    for cell in range(size**2):
        row, column = divmod(cell, size)
        left = cell - 1 if column > 0 else cell
        down = cell + size if row < size - 1 else cell
        right = cell + 1 if column < size - 1 else cell
        up = cell - size if row > 0 else cell
        table.append((left, down, right, up))
    return tuple(table)


def slips(direction: int, success_rate: float) -> tuple[tuple[float, int], ...]:
    """(probability, actual direction) of an intended one: itself with ``success_rate``, each perpendicular half the rest."""
    side = (1.0 - success_rate) / 2.0
    return (success_rate, direction), (side, (direction - 1) % 4), (side, (direction + 1) % 4)


def actual_direction(direction: int, success_rate: float, uniform: float) -> int:
    """The direction really taken, given a uniform draw in [0, 1): the inverse cumulative distribution of ``slips``."""
    if uniform < success_rate:
        return direction
    return (direction - 1) % 4 if uniform < (1.0 + success_rate) / 2.0 else (direction + 1) % 4
