"""FrozenLake as a text environment."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field, field_validator, model_validator

from ragen.envs.base import Environment, EnvSettings, FourWords, Observation, Step
from ragen.envs.facts import Fact, offset_facts, offset_parts, place_fact
from ragen.envs.frozen_lake.maps import directions, make_lake
from ragen.envs.frozen_lake.planning import Planner, affordable, is_exact, planner
from ragen.envs.frozen_lake.rules import DOWN, LEFT, RIGHT, UP, Lake, actual_direction, neighbours
from ragen.errors import EnvironmentFault
from ragen.seeding import derive, generator

SYMBOLS = "P_OGX√"
SYMBOL_NAMES = ("player", "frozen", "hole", "goal", "player in hole", "player on goal")
OPENERS = (
    "I try",
    "I will go",
    "Let me go",
    "So I move",
    "My next moves are",
    "I step",
    "From here I take",
    "A way over the ice:",
)
HEADINGS = ("I go there.", "I walk there.", "Let me head there.", "So that way.", "I move on.", "That is my way.", "I try.")


class FrozenLakeSettings(EnvSettings):
    """Settings of ``FrozenLake``; only size, frozen, corners and blind_failure change which map an instance seed means."""

    size: int = Field(4, ge=2, le=20, description="rows and columns of the map")
    frozen: float = Field(0.8, gt=0, le=1, description="probability that a cell is no hole")
    success_rate: float = Field(1 / 3, ge=0, le=1, description="s: how often a move goes the intended way; 1 = no slipping")
    corners: bool = Field(False, description="start top left and goal bottom right instead of random cells")
    require_blind_failure: bool = Field(False, description="only maps on which heading straight for the goal always fails")
    tries: int = Field(2000, ge=1, description="maps drawn at most until one fits")
    hint: Literal["none", "coords", "offset"] = Field(
        "none",
        description="adds the coordinates of player, goal and holes, or the goal's offset ('Goal is 2 down, 1 left.')",
    )
    symbols: str = Field(SYMBOLS, description="6 characters: " + ", ".join(SYMBOL_NAMES))
    action_words: FourWords = Field(
        ("Left", "Down", "Right", "Up"), description="words for left, down, right, up (gymnasium's ids 0 to 3)"
    )

    @field_validator("symbols")
    @classmethod
    def _six_symbols(cls, symbols: str) -> str:
        if len(symbols) != 6 or len(set(symbols)) != 6 or not symbols.isprintable() or " " in symbols:
            raise ValueError(
                f"6 different printable characters are needed, for {', '.join(SYMBOL_NAMES)} (the default is {SYMBOLS})"
            )
        return symbols

    @model_validator(mode="after")
    def _possible(self) -> "FrozenLakeSettings":
        if not self.require_blind_failure:
            return self
        if self.success_rate < 1:
            raise ValueError(
                f"env.require_blind_failure promises maps on which heading straight for the goal always fails, but with "
                f"env.success_rate {self.success_rate:g} a slip can save it: set env.success_rate to 1"
            )
        if self.frozen == 1 or self.size < 3:
            raise ValueError(
                f"env.require_blind_failure needs holes and room for a detour, but env.frozen is {self.frozen:g} and "
                f"env.size is {self.size}: take env.frozen below 1 and env.size of 3 or more"
            )
        return self


class FrozenLake(Environment):
    """Walk over slippery ice to the goal without stepping into a hole.

    - Actions: ``Left``, ``Down``, ``Right``, ``Up``. A move goes the intended way with probability s (``success_rate``),
      to each perpendicular side with (1 − s)/2, never backwards; off the grid = stay.
    - Observation: the grid, a row a line, one character a cell; with ``hint`` also coordinates or the goal's offset.
    - Rewards: 1 on reaching the goal, else 0.
    - End: on the goal or in a hole, or when the budgets of turns and actions are spent.
    - Instances: the instance seed fixes the map, the dynamics seed the slips.
    """

    settings_class: ClassVar[type[EnvSettings]] = FrozenLakeSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self._own = cast(FrozenLakeSettings, self.settings)
        self._directions = {word: direction for direction, word in enumerate(self._own.action_words)}
        self._lake: Lake | None = None
        self._slips: np.random.Generator | None = None
        self._cell = self._taken = 0
        self._over = False
        self._planned: set[int] = set()
        self._ice: list[str] = []

    @property
    def success(self) -> bool:
        """Whether the player is on the goal."""
        return self._lake is not None and self._cell == self._lake.goal

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start on the map of ``instance_seed``; raises ConfigError if no map fits within ``tries``."""
        own = self._own
        lake = make_lake(
            instance_seed,
            size=own.size,
            frozen=own.frozen,
            corners=own.corners,
            blind_failure=own.require_blind_failure,
            tries=own.tries,
        )
        self._slips = generator(derive(dynamics_seed, "frozen_lake", "slips")) if own.success_rate < 1 else None
        self._lake, self._cell, self._taken, self._over = lake, lake.start, 0, False
        self._planned = set()
        self._ice = [own.symbols[2] if cell in lake.holes else own.symbols[1] for cell in range(own.size**2)]
        self._ice[lake.goal] = own.symbols[3]
        return Observation(self._render(lake), {"success": False})

    def step(self, action: str) -> Step:
        """Move one cell, or slip. Text that is no action changes nothing and pays 0."""
        lake = self._playing()
        if self._over:
            raise EnvironmentFault("frozen_lake: step() after the end of the episode; call reset() first")
        direction = self._directions.get(action)
        if direction is None:
            info = {"success": False, "action_is_valid": False, "action_is_effective": False}
            return Step(self._render(lake), 0.0, terminated=False, info=info)
        if self._slips is not None:
            direction = actual_direction(direction, self._own.success_rate, self._slips.random())
        before, self._cell = self._cell, neighbours(lake.size)[self._cell][direction]
        self._taken += 1
        won = self._cell == lake.goal
        self._over = won or self._cell in lake.holes
        info = {"success": won, "action_is_valid": True, "action_is_effective": self._cell != before}
        return Step(self._render(lake), float(won), terminated=self._over, info=info)

    def actions(self) -> tuple[str, ...]:
        """The words for left, down, right and up."""
        return self._own.action_words

    def instructions(self) -> str:
        """The goal, the slip and the legend, short or in the paper's style."""
        own = self._own
        player, frozen, hole, goal, in_hole, on_goal = tuple(own.symbols)
        left, down, right, up = own.action_words
        if own.wording == "verbose":
            text = (
                "You are solving the FrozenLake puzzle. Walk over the ice to the goal and avoid the holes: "
                "a hole ends the game. Reaching the goal gives a reward of 1, anything else 0.\n"
                f"The meaning of each symbol in the state is: {player}: player, {frozen}: frozen, {hole}: hole, "
                f"{goal}: goal, {in_hole}: player in hole, {on_goal}: player on goal.\n"
                f"{left} moves you one column left, {down} one row down, {right} one column right, {up} one row up."
            )
        else:
            text = f"FrozenLake: walk to the goal, never into a hole.\n{player} you, {frozen} ice, {hole} hole, {goal} goal."
        if own.success_rate < 1:
            text += (
                f" The ice is slippery: a move goes your way {own.success_rate:.0%} of the time, else to one of its sides."
            )
        if own.hint == "coords":
            text += "\nCoordinates are (row, column), counted from (0, 0) at the top left."
        return text

    def content(self) -> str | None:
        """The map in gymnasium's letters: equal for variants that show the same map differently."""
        return "frozen_lake " + "/".join(self._playing().rows())

    def facts(self) -> tuple[Fact, ...]:
        """Where the goal lies, seen from the player; with ``hint: coords`` the coordinates of both instead."""
        lake = self._playing()
        if self._own.hint != "coords":
            return offset_facts("goal", [directions(lake, self._cell)], self._compass())
        player, goal = divmod(self._cell, lake.size), divmod(lake.goal, lake.size)
        return place_fact("you|player", [player]), place_fact("goal", [goal])

    def anchor(self) -> str:
        """The player's cell on the map."""
        return f"{self.content()} {self._cell}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning: it restates the hint, if there is one, else it names the moves (the first 7 of a longer turn).

        Where it restates the hint it leaves the moves to the answer: half the tokens, and nothing to copy but the hint.
        """
        lake = self._playing()
        if self._own.hint != "none":
            hint = self._offset(lake) if self._own.hint == "offset" else self._places(lake)
            return f"{hint} {HEADINGS[int(rng.integers(len(HEADINGS)))]}"
        return f"{OPENERS[int(rng.integers(len(OPENERS)))]} {', '.join(actions[:7])}."

    def plan(self) -> tuple[str, ...] | None:
        """A best block of actions for the next turn within the budgets that remain; None at the end.

        Exact where ``planning.is_exact`` says so. Without a turn counter of its own, it takes each state it was
        asked in, and then left, as the start of a turn that is gone.
        """
        lake, own = self._playing(), self._own
        self._planned.add(self._taken)
        gone = max(len(self._planned) - 1, -(-self._taken // own.max_actions_per_turn))
        turns, left = own.max_turns - gone, own.max_actions - self._taken
        if self._over or turns <= 0 or left <= 0:
            return None
        farthest, most, _ = affordable(*self._budgets())
        block = self._planner(lake).block(self._cell, min(turns, farthest), min(left, most))
        return tuple(own.action_words[direction] for direction in block)

    def best_success(self) -> float | None:
        """The best play's chance to reach the goal from the start within the budgets; None where planning is not exact."""
        lake = self._playing()
        if not is_exact(*self._budgets()):
            return None
        turns, actions, _ = affordable(*self._budgets())
        return self._planner(lake).value(lake.start, turns, actions)

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``blind`` heads straight for the goal along an L (which leg first is random) and ignores holes."""
        return {"blind": _blind}

    def straight(self, rng: np.random.Generator) -> tuple[str, ...]:
        """The next turn of the walker that ignores holes."""
        down, right = directions(self._playing(), self._cell)
        words = self._own.action_words
        legs = [(words[DOWN if down > 0 else UP],) * abs(down), (words[RIGHT if right > 0 else LEFT],) * abs(right)]
        first = int(rng.integers(2))
        return (legs[first] + legs[1 - first])[: self._own.max_actions_per_turn]

    def _playing(self) -> Lake:
        if self._lake is None:
            raise EnvironmentFault("frozen_lake: no episode has begun; call reset() first")
        return self._lake

    def _planner(self, lake: Lake) -> Planner:
        return planner(lake, self._own.success_rate, affordable(*self._budgets())[2])

    def _budgets(self) -> tuple[int, int, int, int]:
        own = self._own
        return own.size, own.max_turns, own.max_actions, own.max_actions_per_turn

    def _render(self, lake: Lake) -> str:
        symbols, size = self._own.symbols, lake.size
        shown = self._ice.copy()
        shown[self._cell] = symbols[5 if self._cell == lake.goal else 4 if self._cell in lake.holes else 0]
        text = "".join(shown)
        grid = "\n".join([text[begin : begin + size] for begin in range(0, size * size, size)])
        if self._own.hint == "none":
            return grid
        return f"{grid}\n{self._offset(lake) if self._own.hint == 'offset' else self._coordinates(lake)}"

    def _offset(self, lake: Lake) -> str:
        parts = offset_parts(*directions(lake, self._cell), self._compass())
        return f"Goal is {', '.join(parts)}." if parts else "Goal is here."

    def _compass(self) -> tuple[str, ...]:
        """The words for up, down, left and right as a sentence has them."""
        return tuple(self._own.action_words[direction].lower() for direction in (UP, DOWN, LEFT, RIGHT))

    def _places(self, lake: Lake) -> str:
        row, column = divmod(self._cell, lake.size)
        goal_row, goal_column = divmod(lake.goal, lake.size)
        return f"You: ({row}, {column}). Goal: ({goal_row}, {goal_column})."

    def _coordinates(self, lake: Lake) -> str:
        holes = " ".join(f"({cell // lake.size}, {cell % lake.size})" for cell in sorted(lake.holes))
        return f"{self._places(lake)} Holes: {holes}." if holes else f"{self._places(lake)} No holes."


def _blind(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    if not isinstance(env, FrozenLake):
        raise EnvironmentFault(f"the blind walker plays frozen_lake, not {type(env).__name__}")
    return env.straight(rng)
