"""Level files: XSB text, which Boxoban files and most collections use, and back.

``#`` wall, blank ``-`` or ``_`` floor, ``.`` target, ``$`` box, ``*`` box on target, ``@`` player, ``+`` player on target.
Levels are separated by any line that is not part of a grid (a blank one, ``; 12``, ``Title: …``).
"""

from functools import lru_cache
from pathlib import Path

from ragen.envs.sokoban.rules import Level, cells, make_board, neighbours, reachable, solved
from ragen.errors import ConfigError, reason

FLOOR = " -_"
GRID = frozenset("#.$*@+" + FLOOR)
LARGEST = 100  # rows and columns; the largest published levels have some 60


@lru_cache(maxsize=16)
def load_levels(path: str) -> tuple[Level, ...]:
    """All levels of a file, in order; ``ConfigError`` names the file, the level and what is wrong with it."""
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:  # no such user in ~user, a NUL, not UTF-8
        raise ConfigError(
            f"env.level_file {path!r} cannot be read ({reason(error)}): give a text file of XSB levels"
        ) from None
    levels = []
    for number, rows in enumerate(split_levels(text)):
        try:
            level = parse_level(rows)
        except ConfigError as error:
            raise ConfigError(f"env.level_file {path!r}, level {number}: {error}") from None
        if solved(level.board, level.boxes):
            raise ConfigError(f"env.level_file {path!r}, level {number}: it is already solved; remove it")
        levels.append(level)
    if not levels:
        raise ConfigError(
            f"env.level_file {path!r} has no level: rows of # . $ * @ + and blanks, with a line between levels"
        )
    return tuple(levels)


def split_levels(text: str) -> list[list[str]]:
    """The grids in a text, each a list of rows.

    >>> split_levels("; 0\\n#####\\n#@$.#\\n#####\\n\\nTitle: one\\n")
    [['#####', '#@$.#', '#####']]
    """
    found: list[list[str]] = [[]]
    for line in text.splitlines():
        if "#" in line and GRID.issuperset(line.rstrip()):
            found[-1].append(line.rstrip())
        elif found[-1]:
            found.append([])
    return [rows for rows in found if rows]


def parse_level(rows: list[str]) -> Level:
    """A level from its rows; shorter rows are filled up.

    Floor the player can never reach (outside the walls, for example) becomes wall. Raises ``ConfigError`` unless there are
    exactly one player, at least one box, as many targets as boxes, and at most LARGEST rows and columns.
    """
    width = max(map(len, rows))
    if max(width, len(rows)) > LARGEST:
        raise ConfigError(f"it has {len(rows)} rows and {width} columns: at most {LARGEST} of each can be played")
    text = "".join(row.ljust(width) for row in rows)
    unknown = sorted(set(text) - GRID)
    if unknown:
        raise ConfigError(f"character {unknown[0]!r} is unknown: use # . $ * @ + and blank, - or _ for floor")
    players, boxes, targets, walls = (_mask(text, kind) for kind in ("@+", "$*", ".*+", "#"))
    if players.bit_count() != 1:
        raise ConfigError(f"it has {players.bit_count()} players (@ or +), exactly 1 is needed")
    if not boxes or boxes.bit_count() != targets.bit_count():
        raise ConfigError(
            f"it has {boxes.bit_count()} boxes ($ or *) and {targets.bit_count()} targets (. or + or *): at least one "
            "of each and as many of one as of the other are needed"
        )
    player = players.bit_length() - 1
    inside = reachable(neighbours(width, len(rows), walls), player, 0)
    walls = (1 << len(text)) - 1 & ~(inside | boxes | targets)
    return Level(make_board(width, len(rows), walls, targets), player, boxes)


def level_rows(level: Level) -> list[str]:
    """The rows of a level in XSB, the inverse of ``parse_level``."""
    board = level.board
    text = [" "] * len(board.pushes)
    for mask, kinds in ((board.walls, "##"), (level.boxes, "$*"), (1 << level.player, "@+")):
        for cell in cells(mask):
            text[cell] = kinds[board.targets >> cell & 1]
    for cell in cells(board.targets & ~level.boxes & ~(1 << level.player)):
        text[cell] = "."
    return ["".join(text[start : start + board.width]) for start in range(0, len(text), board.width)]


def _mask(text: str, kinds: str) -> int:
    return sum(1 << cell for cell, kind in enumerate(text) if kind in kinds)
