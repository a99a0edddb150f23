"""The best play of a map within the remaining turns and actions, by finite-horizon dynamic programming.

An agent commits to all actions of a turn before it sees what they did, so a turn is an *open-loop* block; between turns it
sees the state. With k turns and b actions left, at most c actions a turn, T_a the (slippery) transition matrix of
action a among open cells and g_a the chance that it enters the goal:

    V_k,b(x) = max over l ≤ min(c, b) and a_1…a_l of  w(x),   w = B_a1 B_a2 … B_al V_(k−1, b−l),   B_a v = g_a + T_a v

with V_0,b = V_k,0 = 0. All 4^l blocks are tried at once, as columns of one matrix: exact, and cheap as long as c is small.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ragen.envs.frozen_lake.rules import Lake, neighbours, slips

Array = NDArray[np.float64]
TIE = 1e-12
LONGEST_BLOCK = 7  # all 4^7 blocks are tried; longer turns are planned with blocks of this length
FARTHEST = 64  # turns and actions that are looked ahead
MOST_WORK = 1e10  # multiplications, some seconds, beyond which shorter blocks are planned


def affordable(size: int, turns: int, actions: int, block: int) -> tuple[int, int, int]:
    """Turns, actions and actions a turn that are planned with: those given, less what nobody could use, where it is exact.

    The tables take about turns · actions · 4^block · size⁴ multiplications.
    """
    actions = min(actions, FARTHEST, turns * block)
    turns = min(turns, FARTHEST, actions)
    block = min(block, actions, LONGEST_BLOCK)
    while block > 1 and turns * actions * 4**block * size**4 > MOST_WORK:
        block -= 1
    return turns, actions, block


def is_exact(size: int, turns: int, actions: int, block: int) -> bool:
    """Whether these budgets are planned for in full."""
    needed = min(actions, turns * block)
    return affordable(size, turns, actions, block) == (min(turns, needed), needed, min(block, needed))


class Planner:
    """Values and best blocks (of at most ``limit`` actions) of one map; tables are filled as they are asked for."""

    def __init__(self, lake: Lake, success_rate: float, limit: int) -> None:
        self.limit = limit
        cells = [cell for cell in range(lake.size**2) if cell not in lake.holes and cell != lake.goal]
        self._index = {cell: index for index, cell in enumerate(cells)}
        self._moves = np.zeros((4, len(cells), len(cells)))
        self._goal = np.zeros((4, len(cells), 1))
        for cell, index in self._index.items():
            for action in range(4):
                for probability, direction in slips(action, success_rate):
                    target = neighbours(lake.size)[cell][direction]
                    if target == lake.goal:
                        self._goal[action, index, 0] += probability
                    elif target in self._index:
                        self._moves[action, index, self._index[target]] += probability
        self._values: dict[tuple[int, int], Array] = {}
        self._levels: dict[tuple[int, int], list[Array]] = {}

    def value(self, cell: int, turns: int, actions: int) -> float:
        """The best chance to reach the goal from an open cell with so many turns and actions left."""
        return float(min(self._value(turns, actions)[self._index[cell]], 1.0))

    def block(self, cell: int, turns: int, actions: int) -> tuple[int, ...]:
        """A best block of directions for the next turn; empty without budget.

        Of equally good plays it follows one that needs the fewest turns, and of its blocks the shortest.
        """
        x = self._index[cell]
        goal = self.value(cell, turns, actions) - TIE
        turns = next((fewer for fewer in range(1, turns) if self.value(cell, fewer, actions) >= goal), turns)
        best = -1.0
        chosen: tuple[int, ...] = ()
        for length in range(1, min(self.limit, actions) + 1 if turns > 0 else 1):
            value = float(self._blocks_after(turns - 1, actions - length)[length - 1][x])
            if value > best + TIE:
                best, chosen = value, self._decode(x, turns, actions, length)
        return chosen

    def _value(self, turns: int, actions: int) -> Array:
        key = (turns, actions)
        if key not in self._values:
            value = np.zeros(len(self._index))
            if turns > 0:
                for length in range(1, min(self.limit, actions) + 1):
                    np.maximum(value, self._blocks_after(turns - 1, actions - length)[length - 1], out=value)
            self._values[key] = value
        return self._values[key]

    def _blocks_after(self, turns: int, actions: int) -> list[Array]:
        """For l = 1, 2, …: the best value, by cell, of a block of l actions after which (turns, actions) are left."""
        key = (0, 0) if turns == 0 or actions == 0 else (turns, actions)
        if key not in self._levels:
            after = self._value(*key)
            self._levels[key] = [blocks.max(axis=1) for blocks in self._expand(after, self.limit)]
        return self._levels[key]

    def _decode(self, x: int, turns: int, actions: int, length: int) -> tuple[int, ...]:
        *_, blocks = self._expand(self._value(turns - 1, actions - length), length)
        code = int(blocks[x].argmax())
        return tuple(code >> 2 * (length - 1 - place) & 3 for place in range(length))

    def _expand(self, value: Array, depth: int) -> Iterator[Array]:
        """Per length l: values (cells, 4^l); a column number is the block in base 4, its first action the highest digit."""
        blocks = value[:, None]
        for _ in range(depth):
            blocks = np.concatenate(list(self._goal + self._moves @ blocks), axis=1)
            yield blocks


@lru_cache(maxsize=1024)
def planner(lake: Lake, success_rate: float, max_actions_per_turn: int) -> Planner:
    """The planner of a map, shared by all episodes on it; exact where a turn holds at most ``LONGEST_BLOCK`` actions."""
    return Planner(lake, success_rate, min(max_actions_per_turn, LONGEST_BLOCK))
