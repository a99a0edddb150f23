"""Shortest solutions by A*: fewest moves, because the budgets of an episode count moves."""

from ragen.envs.sokoban.rules import DEAD, Board, cells

MAX_STATES = 500_000


class SearchLimitError(Exception):
    """The search visited as many states as it may without an answer."""


def solve(
    board: Board, player: int, boxes: int, *, limit: int | None = None, max_states: int = MAX_STATES
) -> tuple[int, ...] | None:
    """The directions of a solution with the fewest moves, or None where there is none (of at most ``limit`` moves).

    A* (Hart, Nilsson, Raphael 1968) over (player, boxes) with the sum of each box's least pushes to a target as
    heuristic. It is consistent: a walk leaves it as it is and a push changes it by at most one, so the first time a state is
    expanded its cost is the least. Boxes on dead squares are never searched. Raises ``SearchLimitError`` after
    ``max_states`` states.
    """
    bits = len(board.pushes).bit_length()
    low = (1 << bits) - 1
    if any(board.pushes[cell] == DEAD for cell in cells(boxes)):
        return None
    start = boxes << bits | player
    estimate = sum(board.pushes[cell] for cell in cells(boxes))
    cost = {start: 0}
    came: dict[int, tuple[int, int]] = {}
    buckets = {estimate: [(start, 0, estimate)]}  # by cost + heuristic
    total = estimate
    while buckets and (limit is None or total <= limit):
        bucket = buckets.get(total, [])
        while bucket:
            state, moves, left = bucket.pop()
            if moves > cost[state]:
                continue
            if left == 0:
                return _path(came, state)
            for direction, following, pushes in _moves(board, state & low, state >> bits, left, bits):
                if moves + 1 < cost.get(following, moves + 2):
                    cost[following] = moves + 1
                    came[following] = (state, direction)
                    buckets.setdefault(moves + 1 + pushes, []).append((following, moves + 1, pushes))
            if len(cost) > max_states:
                raise SearchLimitError(f"no answer after {max_states} states")
        buckets.pop(total, None)
        total += 1
    return None


def _moves(board: Board, player: int, boxes: int, left: int, bits: int) -> list[tuple[int, int, int]]:
    """What can follow a state: (direction, state, heuristic) of each move that changes it and leaves no box dead."""
    found = []
    for direction, row in enumerate(board.near):
        ahead = row[player]
        if ahead < 0:
            continue
        if not boxes >> ahead & 1:
            found.append((direction, boxes << bits | ahead, left))
            continue
        beyond = row[ahead]
        if beyond < 0 or boxes >> beyond & 1 or board.pushes[beyond] == DEAD:
            continue
        moved = boxes ^ (1 << ahead | 1 << beyond)
        found.append((direction, moved << bits | ahead, left + board.pushes[beyond] - board.pushes[ahead]))
    return found


def _path(came: dict[int, tuple[int, int]], state: int) -> tuple[int, ...]:
    directions = []
    while state in came:
        state, direction = came[state]
        directions.append(direction)
    return tuple(reversed(directions))
