"""The rules of Sokoban on integers.

A cell is its index ``row * width + column``; a set of cells is a bit mask. The rewards are those gym-sokoban publishes:
−0.1 a step, +1 for a box pushed onto a target, −1 for one pushed off, +10 once all boxes are on targets.
"""

from collections.abc import Iterator
from dataclasses import dataclass

UP, DOWN, LEFT, RIGHT = range(4)
DIRECTIONS = (UP, DOWN, LEFT, RIGHT)
OPPOSITE = (DOWN, UP, RIGHT, LEFT)
STEP_REWARD = -0.1
BOX_REWARD = 1.0
FINISHED_REWARD = 10.0
DEAD = -1


@dataclass(frozen=True, slots=True)
class Board:
    """What never moves.

    ``near[direction][cell]`` is the neighbour cell, or −1 where there is a wall or the grid ends. ``pushes[cell]`` is the
    least number of pushes that bring a lone box from the cell to a target, or −1 (``DEAD``) where none can.
    """

    width: int
    height: int
    walls: int
    targets: int
    near: tuple[tuple[int, ...], ...]
    pushes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """A board with the player's cell and the mask of boxes at the start."""

    board: Board
    player: int
    boxes: int


def cells(mask: int) -> Iterator[int]:
    """The cells of a mask, in ascending order.

    >>> list(cells(0b10010))
    [1, 4]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def neighbours(width: int, height: int, walls: int) -> tuple[tuple[int, ...], ...]:
    """For each direction and cell the neighbour, or −1 where there is a wall or the grid ends."""
    size = width * height
    free = [not walls >> cell & 1 for cell in range(size)]
    up = [cell - width if cell >= width and free[cell - width] else -1 for cell in range(size)]
    down = [cell + width if cell + width < size and free[cell + width] else -1 for cell in range(size)]
    left = [cell - 1 if cell % width and free[cell - 1] else -1 for cell in range(size)]
    right = [cell + 1 if (cell + 1) % width and free[cell + 1] else -1 for cell in range(size)]
    return tuple(up), tuple(down), tuple(left), tuple(right)


def make_board(width: int, height: int, walls: int, targets: int) -> Board:
    """A board with its neighbour and push tables."""
    near = neighbours(width, height, walls)
    return Board(width, height, walls, targets, near, push_table(near, targets))


def push_table(near: tuple[tuple[int, ...], ...], targets: int) -> tuple[int, ...]:
    """Least pushes from each cell to a target for a lone box and a player that can get anywhere; −1 for dead squares.

    Breadth-first backwards: a box is pulled from a cell in a direction if the next two cells that way are free.
    """
    table = [DEAD] * len(near[UP])
    frontier = list(cells(targets))
    for cell in frontier:
        table[cell] = 0
    for cell in frontier:
        for row in near:
            to = row[cell]
            if to >= 0 and table[to] == DEAD and row[to] >= 0:
                table[to] = table[cell] + 1
                frontier.append(to)
    return tuple(table)


def move(board: Board, player: int, boxes: int, direction: int) -> tuple[int, int]:
    """The player's cell and the boxes after one move; both unchanged where the way is blocked."""
    row = board.near[direction]
    ahead = row[player]
    if ahead < 0:
        return player, boxes
    if boxes >> ahead & 1:
        beyond = row[ahead]
        if beyond < 0 or boxes >> beyond & 1:
            return player, boxes
        boxes ^= 1 << ahead | 1 << beyond
    return ahead, boxes


def solved(board: Board, boxes: int) -> bool:
    """Whether every box is on a target."""
    return not boxes & ~board.targets


def reward(board: Board, before: int, after: int) -> float:
    """The reward of a step that turned the boxes ``before`` into ``after``.

    −0.1, +1 for a box that came onto a target or −1 for one that left it, +10 if all are on targets now: a last push
    pays −0.1 + 1 + 10 = 10.9.
    """
    gained = (after & board.targets).bit_count() - (before & board.targets).bit_count()
    return STEP_REWARD + BOX_REWARD * gained + (FINISHED_REWARD if solved(board, after) else 0.0)


def reachable(near: tuple[tuple[int, ...], ...], player: int, boxes: int) -> int:
    """The mask of cells the player can walk to without pushing, its own cell included."""
    seen = 1 << player
    frontier = [player]
    for cell in frontier:
        for row in near:
            to = row[cell]
            if to >= 0 and not (seen | boxes) >> to & 1:
                seen |= 1 << to
                frontier.append(to)
    return seen
