"""How the page draws an environment: a kind of picture, what it must know for it, and a state for each turn.

The page has one drawing function a kind (``assets/world.js``). An environment without an entry here is shown as its text.
To add one: a function from the environment's settings to a ``Drawing``, under ``@draws(TheEnvironment)``; for a new kind
also its function in the page.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeVar

from ragen.envs.bandit import Bandit, BanditSettings
from ragen.envs.base import Environment, EnvSettings
from ragen.envs.frozen_lake.env import FrozenLake, FrozenLakeSettings
from ragen.envs.game_2048.env import EMPTY, Game2048, Game2048Settings
from ragen.envs.registry import environments
from ragen.envs.sokoban.env import SokobanEnv, SokobanSettings
from ragen.envs.sudoku.env import BLANK, Sudoku, SudokuSettings
from ragen.envs.webshop import WebShop, WebShopSettings
from ragen.episode import Trajectory
from ragen.errors import ConfigError, RagenError
from ragen.report import shop

Frames = list[Any]  # the state before the first turn, then after each turn: K + 1 of them, as JSON; None = not known
Settings = TypeVar("Settings", bound=EnvSettings)


def _no_frames(trajectory: Trajectory) -> Frames | None:
    del trajectory
    return None


@dataclass(frozen=True, slots=True)
class Drawing:
    """``kind`` names the page's function, ``facts`` are what it gets beside a frame; without frames the texts are shown."""

    kind: str = "text"
    facts: Mapping[str, Any] = field(default_factory=dict)
    frames: Callable[[Trajectory], Frames | None] = _no_frames


_drawings: dict[type[Environment], Callable[[Any], Drawing]] = {}


def draws(cls: type[Environment]) -> Callable[[Callable[[Settings], Drawing]], Callable[[Settings], Drawing]]:
    """Decorator that registers how an environment (and its subclasses) is drawn."""

    def add(make: Callable[[Settings], Drawing]) -> Callable[[Settings], Drawing]:
        _drawings[cls] = make
        return make

    return add


def drawing_of(spec: Mapping[str, Any]) -> Drawing:
    """The drawing of a run's section ``env``; text where no registered environment has that name and those settings.

    Only names are looked up: a report never runs the file that a run's environment may lie in.
    """
    try:
        preset = environments.get(str(spec.get("name", "")))
        settings = preset.settings({key: value for key, value in spec.items() if key != "name"})
    except ConfigError:
        return Drawing()
    make = next((_drawings[cls] for cls in preset.cls.__mro__ if cls in _drawings), None)
    return Drawing() if make is None else make(settings)


@draws(FrozenLake)
def _frozen_lake(settings: FrozenLakeSettings) -> Drawing:
    roles = (["ice", "player"], ["ice"], ["hole"], ["goal"], ["hole", "player"], ["goal", "player"])
    return _grid(settings.symbols, roles)


@draws(SokobanEnv)
def _sokoban(settings: SokobanSettings) -> Drawing:
    roles = (["wall"], ["floor"], ["target"], ["target", "box"], ["floor", "box"], ["floor", "player"], ["target", "player"])
    return _grid(settings.symbols, roles)


def _grid(symbols: str, roles: Sequence[Sequence[str]]) -> Drawing:
    """A grid of characters: ``facts["cells"]`` tells of each what lies in the cell, lowest first; a frame is its rows."""

    def frames(trajectory: Trajectory) -> Frames:
        first = trajectory.turns[0].observation if trajectory.turns else ""
        return [grid_in(text, symbols) for text in (first, *after_turns(trajectory))]

    return Drawing("grid", {"cells": {symbol: list(role) for symbol, role in zip(symbols, roles, strict=True)}}, frames)


def grid_in(text: str, symbols: str) -> list[str] | None:
    """The last block of two or more lines of one length (two or more) that hold nothing but ``symbols``.

    >>> grid_in("Walk. P you\\nab\\nP_O\\n___\\nGoal is 1 up.", "P_OG")
    ['P_O', '___']
    """
    found: list[str] | None = None
    block: list[str] = []
    for line in [*text.split("\n"), ""]:
        if block and len(line) == len(block[0]) and set(line) <= set(symbols):
            block.append(line)
            continue
        found = block if len(block) > 1 else found
        block = [line] if len(line) > 1 and set(line) <= set(symbols) else []
    return found


@draws(Sudoku)
def _sudoku(settings: SudokuSettings) -> Drawing:
    return _numbers(settings.size, {"box": round(settings.size**0.5), "blank": BLANK})


@draws(Game2048)
def _game_2048(settings: Game2048Settings) -> Drawing:
    return _numbers(4, {"shades": settings.goal, "blank": EMPTY})


def _numbers(size: int, facts: Mapping[str, Any]) -> Drawing:
    """A square of numbers: a frame is its rows of texts. ``box``: thicker lines around boxes of so many cells, and what the
    first frame has is given; ``shades``: the darker, the nearer to this number.
    """

    def frames(trajectory: Trajectory) -> Frames:
        first = trajectory.turns[0].observation if trajectory.turns else ""
        return [numbers_in(text, size, facts["blank"]) for text in (first, *after_turns(trajectory))]

    return Drawing("numbers", facts, frames)


def numbers_in(text: str, size: int, blank: str) -> list[list[str]] | None:
    """The last ``size`` lines in a row that hold ``size`` numbers or blanks each.

    >>> numbers_in("Sudoku: 1 2.\\n1 _\\n_ 16\\n9 left.", 2, "_")
    [['1', '_'], ['_', '16']]
    """
    found: list[list[str]] | None = None
    block: list[list[str]] = []
    for line in text.split("\n"):
        words = line.split()
        fits = len(words) == size and all(word == blank or word.isdecimal() for word in words)
        block = [*block, words] if fits else []
        found = block[-size:] if len(block) >= size else found
    return found


@draws(Bandit)
def _bandit(settings: BanditSettings) -> Drawing:
    """Two arms: ``facts["arms"]`` tells what each pays; a frame has the arms in the prompt's order and the pulls so far."""
    arms = {}
    for low, high in settings.pairs:
        arms[low] = f"always pays {settings.low_reward:g}"
        arms[high] = f"pays {settings.high_reward:g} in {settings.high_probability:.0%} of pulls, else 0"

    def frames(trajectory: Trajectory) -> Frames | None:
        if not trajectory.turns:
            return None
        text = trajectory.turns[0].observation
        pair = next((pair for pair in settings.pairs if all(name in text for name in pair)), None)
        if pair is None:
            return None
        shown = sorted(pair, key=text.rfind)
        pulls = [[turn.actions[0], turn.reward] for turn in trajectory.turns if turn.actions]
        return [{"arms": shown, "pulls": []}, *({"arms": shown, "pulls": pulls} for _ in trajectory.turns)]

    return Drawing("arms", {"arms": arms}, frames)


@draws(WebShop)
def _webshop(settings: WebShopSettings) -> Drawing:
    """Pages of the shop, played again; without its products, which may lie elsewhere, there are none."""

    @cache
    def opened() -> WebShop | None:
        try:
            return WebShop(settings)
        except RagenError:
            return None

    def frames(trajectory: Trajectory) -> Frames | None:
        env = opened()
        return None if env is None else shop.frames(env, trajectory)

    return Drawing("shop", {}, frames)


def after_turns(trajectory: Trajectory) -> list[str]:
    """The state's text after each turn ("" where it is not told)."""
    return [str(turn.info.get("next_observation", "")) for turn in trajectory.turns]
