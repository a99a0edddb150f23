"""Maps by seed: random holes, start and goal; what does not fit is drawn again, a bounded number of times."""

from functools import lru_cache

from ragen.envs.frozen_lake.rules import DOWN, RIGHT, UP, Lake, neighbours
from ragen.errors import ConfigError
from ragen.seeding import derive, generator


@lru_cache(maxsize=4096)
def make_lake(seed: int, *, size: int, frozen: float, corners: bool, blind_failure: bool, tries: int) -> Lake:
    """The map of an instance seed.

    Every cell is a hole with probability 1 − ``frozen``; then start and goal are laid (``corners``: top left and bottom
    right, else two distinct random cells). A map is taken if the goal can be reached and, with ``blind_failure``, only
    by a detour. Raises ConfigError after ``tries`` maps.
    """
    for attempt in range(tries):
        lake = _draw(derive(seed, "frozen_lake", "map", attempt), size, frozen, corners)
        if blind_failure and has_straight_path(lake):
            continue
        if is_connected(lake):
            return lake
    wish = "connected map on which heading straight for the goal fails" if blind_failure else "connected map"
    raise ConfigError(
        f"found no {wish} in {tries} tries (instance seed {seed}) with env.size {size}, env.frozen {frozen}, "
        f"env.corners {corners}: change env.frozen or env.size, or raise env.tries"
    )


def is_connected(lake: Lake) -> bool:
    """Whether the goal can be reached from the start without entering a hole."""
    table = neighbours(lake.size)
    seen = {lake.start, *lake.holes}
    stack = [lake.start]
    while stack:
        for cell in table[stack.pop()]:
            if cell == lake.goal:
                return True
            if cell not in seen:
                seen.add(cell)
                stack.append(cell)
    return False


def has_straight_path(lake: Lake) -> bool:
    """Whether some order of moves that each come closer to the goal (no detour) avoids all holes."""
    table = neighbours(lake.size)
    vertical, horizontal = directions(lake, lake.start)
    columns = [lake.start]
    for _ in range(abs(horizontal)):
        columns.append(table[columns[-1]][RIGHT if horizontal > 0 else RIGHT - 2])
    free = [cell not in lake.holes for cell in columns]
    free = [all(free[: index + 1]) for index in range(len(free))]
    for _ in range(abs(vertical)):
        columns = [table[cell][DOWN if vertical > 0 else UP] for cell in columns]
        for index, cell in enumerate(columns):
            free[index] = cell not in lake.holes and (free[index] or (index > 0 and free[index - 1]))
    return free[-1]


def directions(lake: Lake, cell: int) -> tuple[int, int]:
    """How far the goal is from ``cell``: (rows down, columns right), negative for up and left."""
    row, column = divmod(cell, lake.size)
    goal_row, goal_column = divmod(lake.goal, lake.size)
    return goal_row - row, goal_column - column


def _draw(seed: int, size: int, frozen: float, corners: bool) -> Lake:
    rng = generator(seed)
    cells = size**2
    draws = rng.random(cells + 2).tolist()
    if corners:
        start, goal = 0, cells - 1
    else:
        start = int(draws[-2] * cells)
        goal = int(draws[-1] * (cells - 1))
        goal += goal >= start
    holes = frozenset(cell for cell in range(cells) if draws[cell] >= frozen and cell not in (start, goal))
    return Lake(size, holes, start, goal)
