"""Levels by reverse play: carve a room by a random walk, put the boxes on targets and pull them away.

Every try has a derived seed and their number is bounded. A level counts only if no box starts on a target and the solver
finds its optimal length in the wanted range: every level can be solved, and none is solved, even in part, at the start.
"""

from functools import lru_cache

import numpy as np

from ragen.envs.sokoban.rules import Level, cells, make_board, reachable
from ragen.envs.sokoban.solver import SearchLimitError, solve
from ragen.errors import ConfigError
from ragen.seeding import derive, generator

TRIES = 1000
PLAYS = 4  # reverse plays a room
SEARCH_STATES = 50_000  # a candidate whose search takes more is dropped
TURN_CHANCE = 0.35
# what one step of the walk opens, as (row, column) offsets: two lines, two corners, a square
SHAPES = (
    ((0, -1), (0, 0), (0, 1)),
    ((-1, 0), (0, 0), (1, 0)),
    ((0, -1), (0, 0), (1, 0)),
    ((0, 0), (0, 1), (1, 0)),
    ((0, -1), (0, 0), (1, -1), (1, 0)),
)
WALK = ((-1, 0), (1, 0), (0, -1), (0, 1))


@lru_cache(maxsize=1024)
def generate(seed: int, *, width: int, height: int, boxes: int, min_moves: int, max_moves: int) -> Level:
    """The level of an instance seed: a function of its arguments alone.

    ``width`` × ``height`` includes the outer walls; the optimal solution takes ``min_moves`` to ``max_moves`` moves. Raises
    ``ConfigError`` when no try gives such a level. Levels are cached because the members of a group share one.
    """
    for attempt in range(TRIES):
        rng = generator(derive(seed, "sokoban", "level", attempt))
        level = _attempt(rng, width, height, boxes, (min_moves, max_moves))
        if level is not None:
            return level
    raise ConfigError(
        f"no Sokoban level found in {TRIES} tries for env.width {width}, env.height {height}, env.boxes {boxes}, "
        f"env.min_moves {min_moves}, env.max_moves {max_moves} and instance seed {seed}: "
        "make the room larger, take fewer boxes, or widen the range of moves"
    )


def _attempt(rng: np.random.Generator, width: int, height: int, boxes: int, span: tuple[int, int]) -> Level | None:
    """One room and a few reverse plays in it; None if none of them lies in the range."""
    walls = _room(rng, width, height)
    floor = [cell for cell in range(width * height) if not walls >> cell & 1]
    if len(floor) < max(
        boxes + 2, min((width - 2) * (height - 2) // 2, _steps(width, height))
    ):  # the walk clung to a corner
        return None
    targets = sum(1 << floor[int(i)] for i in rng.permutation(len(floor))[:boxes])
    board = make_board(width, height, walls, targets)
    for _ in range(PLAYS):
        player, placed = _reverse_play(rng, board.near, floor, targets, span[1])
        if placed & targets:
            continue
        try:
            solution = solve(board, player, placed, limit=span[1], max_states=SEARCH_STATES)
        except SearchLimitError:
            continue
        if solution is not None and len(solution) >= span[0]:
            return Level(board, player, placed)
    return None


def _steps(width: int, height: int) -> int:
    """Length of the walk that carves a room (gym-sokoban's rule)."""
    return int(1.7 * (width + height))


def _room(rng: np.random.Generator, width: int, height: int) -> int:
    """The walls of a room: a random walk that opens a small shape at each step; the border stays."""
    draws = rng.random((_steps(width, height), 3)).tolist()
    opened = 0
    row, column = 1 + int(rng.integers(height - 2)), 1 + int(rng.integers(width - 2))
    down, right = WALK[int(rng.integers(4))]
    for turn, way, shape in draws:
        if turn < TURN_CHANCE:
            down, right = WALK[int(4 * way)]
        row = min(max(row + down, 1), height - 2)
        column = min(max(column + right, 1), width - 2)
        for below, beside in SHAPES[int(len(SHAPES) * shape)]:
            if 0 < row + below < height - 1 and 0 < column + beside < width - 1:
                opened |= 1 << (row + below) * width + column + beside
    return opened ^ (1 << width * height) - 1


def _reverse_play(
    rng: np.random.Generator, near: tuple[tuple[int, ...], ...], floor: list[int], targets: int, longest: int
) -> tuple[int, int]:
    """Pull boxes away from the targets at random, those still on one first; returns the player's cell and the boxes."""
    free = [cell for cell in floor if not targets >> cell & 1]
    player, boxes = free[int(rng.integers(len(free)))], targets
    for draw in rng.random(targets.bit_count() + int(rng.integers(longest))).tolist():
        around = reachable(near, player, boxes)
        pulls = _pulls(near, around, boxes, boxes & targets) or _pulls(near, around, boxes, boxes)
        if not pulls:
            break
        box, player = pulls[int(len(pulls) * draw)]
        boxes ^= 1 << box[0] | 1 << box[1]
    standing = list(cells(reachable(near, player, boxes)))
    return standing[int(rng.integers(len(standing)))], boxes


def _pulls(near: tuple[tuple[int, ...], ...], around: int, boxes: int, which: int) -> list[tuple[tuple[int, int], int]]:
    """Every pull of the boxes ``which`` for a player who can reach ``around``: ((box from, to), the player's cell after)."""
    found = []
    for box in cells(which):
        for row in near:
            to = row[box]
            if to >= 0 and around >> to & 1:
                end = row[to]
                if end >= 0 and not boxes >> end & 1:
                    found.append(((box, to), end))
    return found
