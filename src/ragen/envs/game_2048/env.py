"""2048 as a text environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field, field_validator

from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.envs.game_2048.rules import Board, best_push, push, pushes, with_tile
from ragen.envs.registry import EnvPreset, environments
from ragen.errors import EnvironmentFault
from ragen.seeding import derive, generator

WORDS = ("Left", "Right", "Up", "Down")  # in the order of ``rules.LEFT`` …
EMPTY = "_"
OPENERS = ("I push", "Let me merge:", "Keep the big tiles together:", "My moves are", "I slide", "Next")


class Game2048Settings(EnvSettings):
    """Settings of ``Game2048``."""

    max_turns: int = Field(8, ge=1, description="policy replies an episode at most")
    max_actions: int = Field(40, ge=1, description="pushes an episode at most; one that moves nothing counts")
    max_actions_per_turn: int = Field(5, ge=1, description="pushes a turn at most")
    goal: int = Field(32, description="the tile that wins: a power of 2 from 8 on")

    @field_validator("goal")
    @classmethod
    def _power(cls, goal: int) -> int:
        if not 8 <= goal <= 2**16 or goal & (goal - 1):
            raise ValueError("it must be a power of 2 from 8 to 65536")
        return goal


class Game2048(Environment):
    """Push the tiles of a 4 × 4 board until one of them is the goal.

    - Actions: ``Left``, ``Right``, ``Up``, ``Down``: all tiles slide; two equal ones that meet merge into their sum, each
      tile once a push. Then a new tile comes to a random empty cell: a 2, or (10 %) a 4. A push that moves nothing brings
      no tile.
    - Observation: the board, a row a line, ``_`` for an empty cell.
    - Rewards: the sum of the tiles that a push made, divided by the goal.
    - End: terminated by the goal's tile, or where no push moves anything. Success: the goal's tile, or a larger one.
    - Instances: the instance seed places the first two tiles, the dynamics seed all later ones.

    Best play is not known: there is no oracle. The player ``expectimax`` is a good one, not an optimal one.
    """

    settings_class: ClassVar[type[EnvSettings]] = Game2048Settings
    settings: Game2048Settings

    def __init__(self, settings: Game2048Settings | None = None) -> None:
        super().__init__(settings)
        self._board: Board = ()
        self._first: Board = ()
        self._tiles = np.random.default_rng(0)

    @property
    def success(self) -> bool:
        """Whether the goal's tile is there."""
        return max(self._board, default=0) >= self.settings.goal

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Two tiles by the instance."""
        rng = generator(derive(instance_seed, "2048", "start"))
        board: Board = (0,) * 16
        for _ in range(2):
            board = with_tile(board, rng.random(), rng.random())
        self._board = self._first = board
        self._tiles = generator(derive(dynamics_seed, "2048", "tiles"))
        return Observation(self._render(), {"success": False})

    def step(self, action: str) -> Step:
        """Push; text that is no action changes nothing."""
        board = self._playing()
        if self.success or not pushes(board):
            raise EnvironmentFault("2048: step() after the end of the episode; call reset() first")
        valid = action in WORDS
        moved, points = push(board, WORDS.index(action)) if valid else (board, 0)
        if moved != board:
            self._board = with_tile(moved, self._tiles.random(), self._tiles.random())
        over = self.success or not pushes(self._board)
        info = {"success": self.success, "action_is_valid": valid, "action_is_effective": moved != board}
        return Step(self._render(), points / self.settings.goal, terminated=over, info=info)

    def actions(self) -> tuple[str, ...]:
        """The four directions."""
        return WORDS

    def instructions(self) -> str:
        """The rules and the goal."""
        goal = self.settings.goal
        if self.settings.wording == "verbose":
            return (
                f"You are playing 2048 on a 4 × 4 board. {', '.join(WORDS)} slide all tiles that way; two equal tiles that "
                "meet merge into their sum. After each push that moves something, a new tile (2, seldom 4) comes to a "
                f"random empty cell ({EMPTY}). You win with a tile of {goal}; the game is lost when nothing can move. Your "
                f"reward is the sum of the tiles made by merging, divided by {goal}."
            )
        return f"2048: slide the tiles; equal ones that meet merge. Make a tile of {goal}. {EMPTY} is empty."

    def content(self) -> str | None:
        """The first two tiles."""
        self._playing()
        return f"2048 {' '.join(map(str, self._first))}"

    def anchor(self) -> str:
        """The start and the present board."""
        return f"{self.content()} | {' '.join(map(str, self._board))}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning that names the pushes (the first 5 of a longer turn)."""
        return f"{OPENERS[int(rng.integers(len(OPENERS)))]} {', '.join(actions[:5])}."

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``expectimax`` looks two pushes ahead; the tiles between the pushes of a turn it draws for itself."""
        return {"expectimax": _expectimax}

    def looked_ahead(self, rng: np.random.Generator) -> tuple[str, ...]:
        """The next turn of the player by expectimax."""
        board, chosen = self._playing(), []
        for _ in range(self.settings.max_actions_per_turn):
            direction = best_push(board)
            if direction is None or max(board) >= self.settings.goal:
                break
            chosen.append(WORDS[direction])
            board = with_tile(push(board, direction)[0], rng.random(), rng.random())
        return tuple(chosen)

    def _playing(self) -> Board:
        if not self._board:
            raise EnvironmentFault("2048: no episode has begun; call reset() first")
        return self._board

    def _render(self) -> str:
        shown = [str(tile) if tile else EMPTY for tile in self._board]
        return "\n".join(" ".join(shown[begin : begin + 4]) for begin in range(0, 16, 4))


def _expectimax(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    if not isinstance(env, Game2048):
        raise EnvironmentFault(f"the player expectimax plays 2048, not {type(env).__name__}")
    return env.looked_ahead(rng)


environments.register("2048")(EnvPreset(Game2048, "merge tiles to 32 within 40 pushes"))
environments.register("2048-64")(
    EnvPreset(Game2048, "merge tiles to 64 within 80 pushes", {"goal": 64, "max_turns": 16, "max_actions": 80})
)
