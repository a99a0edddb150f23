"""The rules of 2048 on rows of tiles, and a player by expectimax."""

from collections.abc import Iterator
from functools import lru_cache

SIZE = 4
LEFT, RIGHT, UP, DOWN = range(4)
FOUR = 0.1  # how often a new tile is a 4 and not a 2

Board = tuple[int, ...]  # 16 tiles row by row; 0 = empty


@lru_cache(maxsize=100_000)
def slide(row: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """A row pushed to its first cell, and the sum of the tiles that merging made; a tile merges once a push.

    >>> slide((2, 2, 2, 2)), slide((4, 2, 2, 0)), slide((0, 2, 0, 4))
    (((4, 4, 0, 0), 8), ((4, 4, 0, 0), 4), ((2, 4, 0, 0), 0))
    """
    tiles = [tile for tile in row if tile]
    merged, points, at = [], 0, 0
    while at < len(tiles):
        double = at + 1 < len(tiles) and tiles[at] == tiles[at + 1]
        merged.append(tiles[at] * (2 if double else 1))
        points += merged[-1] if double else 0
        at += 2 if double else 1
    return tuple(merged + [0] * (len(row) - len(merged))), points


def lines(direction: int) -> tuple[tuple[int, ...], ...]:
    """The cells of the four lines of a direction, each beginning where the tiles are pushed to."""
    rows = [tuple(range(SIZE * row, SIZE * row + SIZE)) for row in range(SIZE)]
    columns = [tuple(range(column, SIZE * SIZE, SIZE)) for column in range(SIZE)]
    chosen = rows if direction in (LEFT, RIGHT) else columns
    return tuple(line[::-1] if direction in (RIGHT, DOWN) else line for line in chosen)


LINES = tuple(lines(direction) for direction in range(4))


@lru_cache(maxsize=200_000)
def push(board: Board, direction: int) -> tuple[Board, int]:
    """The board after a push, before a new tile comes, and the sum of the tiles made; an equal board: nothing moves."""
    tiles, points = list(board), 0
    for line in LINES[direction]:
        moved, gained = slide(tuple(board[cell] for cell in line))
        points += gained
        for cell, tile in zip(line, moved, strict=True):
            tiles[cell] = tile
    return tuple(tiles), points


def pushes(board: Board) -> list[int]:
    """The directions in which something moves."""
    return [direction for direction in range(4) if push(board, direction)[0] != board]


def with_tile(board: Board, place: float, kind: float) -> Board:
    """A new tile in an empty cell: ``place`` and ``kind`` are two draws from [0, 1)."""
    empty = [cell for cell, tile in enumerate(board) if not tile]
    cell = empty[int(place * len(empty))]
    return (*board[:cell], 4 if kind < FOUR else 2, *board[cell + 1 :])


def best_push(board: Board, depth: int = 2) -> int | None:
    """The push with the highest expected ``worth`` after ``depth`` pushes and the tiles between; None where none is left.

    A known good player, not an optimal one: it looks ``depth`` pushes ahead and judges by a rule of thumb.
    """
    options = pushes(board)
    if not options:
        return None
    return max(options, key=lambda direction: _after(*push(board, direction), depth - 1))


def _after(board: Board, points: int, depth: int) -> float:
    """Expected worth of a board to which a tile comes; the points made count as well."""
    if depth == 0:
        return points + worth(board)
    empty = board.count(0)
    total = 0.0
    for chance, board_after in _tiles(board):
        best = max((_after(*push(board_after, d), depth - 1) for d in pushes(board_after)), default=0.0)
        total += chance * best
    return points + total / max(1, empty)


def _tiles(board: Board) -> Iterator[tuple[float, Board]]:
    """Each board that a 2 in an empty cell makes (a 4 comes too seldom to change the choice)."""
    for cell, tile in enumerate(board):
        if not tile:
            yield 1.0, (*board[:cell], 2, *board[cell + 1 :])


@lru_cache(maxsize=200_000)
def worth(board: Board) -> float:
    """How good a board is to go on with: empty cells, and large tiles in order along the edges towards one corner."""
    snake = sum(tile * weight for tile, weight in zip(board, SNAKE, strict=True))
    return 8.0 * board.count(0) + max(snake, sum(tile * weight for tile, weight in zip(board[::-1], SNAKE, strict=True)))


SNAKE = (8.0, 6.0, 4.5, 3.5, 1.2, 1.6, 2.0, 2.5, 0.8, 0.6, 0.4, 0.2, 0.0, 0.0, 0.0, 0.0)
