"""Sokoban as a text environment."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field, field_validator, model_validator

from ragen.envs.base import Environment, EnvSettings, FourWords, Observation, Step
from ragen.envs.facts import Fact, offset_facts, offset_parts, place_fact
from ragen.envs.registry import EnvPreset, environments
from ragen.envs.sokoban.generator import generate
from ragen.envs.sokoban.levels import level_rows, load_levels
from ragen.envs.sokoban.rules import BOX_REWARD, FINISHED_REWARD, STEP_REWARD, Level, cells, move, reward, solved
from ragen.envs.sokoban.solver import SearchLimitError, solve
from ragen.errors import EnvironmentFault

SYMBOLS = "#_O√XPS"
SYMBOL_NAMES = ("wall", "floor", "target", "box on target", "box", "player", "player on target")
PLAN_STATES = 200_000
LONGEST_SOLUTION = 1000  # moves that may be asked of a generated level; no room is large enough for as many
OPENERS = (
    "I will go",
    "Let me move",
    "The box needs me to go",
    "My next moves are",
    "I try",
    "From here I go",
    "Moving on:",
)
HEADINGS = ("I push it there.", "I go that way.", "Let me push.", "So that way.", "I move on.", "That is my way.", "I try.")


class SokobanSettings(EnvSettings):
    """Settings of ``SokobanEnv``; symbols, words, hint and wording never change which level an instance seed means."""

    width: int = Field(6, ge=3, le=40, description="columns, outer walls included")
    height: int = Field(6, ge=3, le=40, description="rows, outer walls included")
    boxes: int = Field(1, ge=1, description="boxes (and targets)")
    min_moves: int = Field(
        2, ge=1, le=LONGEST_SOLUTION, description="difficulty: the least optimal solution length, in moves"
    )
    max_moves: int = Field(
        10, ge=1, le=LONGEST_SOLUTION, description="difficulty: the greatest optimal solution length, in moves"
    )
    symbols: str = Field(SYMBOLS, description="7 characters: " + ", ".join(SYMBOL_NAMES) + "; blanks between are ignored")
    action_words: FourWords = Field(("Up", "Down", "Left", "Right"), description="words for up, down, left, right")
    hint: Literal["none", "coords", "offset"] = Field(
        "none",
        description="adds the coordinates of player, boxes and targets, or where boxes and targets lie, seen from the "
        "player ('Box is 1 right. Target is 2 right.')",
    )
    level_file: str = Field("", description="XSB or Boxoban file to play instead of generated levels; empty = generate")

    @field_validator("symbols")
    @classmethod
    def _seven_symbols(cls, symbols: str) -> str:
        symbols = "".join(symbols.split())
        if len(symbols) != 7 or len(set(symbols)) != 7 or not symbols.isprintable():
            raise ValueError(
                f"7 different printable characters are needed, for {', '.join(SYMBOL_NAMES)} (the default is {SYMBOLS})"
            )
        return symbols

    @model_validator(mode="after")
    def _possible(self) -> "SokobanSettings":
        if self.min_moves > self.max_moves:
            raise ValueError(
                f"env.min_moves is {self.min_moves}, more than env.max_moves {self.max_moves}: lower it or raise the other"
            )
        inner = (self.width - 2, self.height - 2)
        if not self.level_file and (max(inner) < 3 or inner[0] * inner[1] < 2 * self.boxes):
            raise ValueError(
                f"env.boxes is {self.boxes}, but a room of env.width {self.width} × env.height {self.height} has "
                f"{inner[0]} × {inner[1]} cells inside its walls: boxes and targets start on cells of their own, and a push "
                "needs 3 cells in line; make the room larger or take fewer boxes"
            )
        return self


class SokobanEnv(Environment):
    """Push every box onto a target (deterministic).

    - Actions: ``Up``, ``Down``, ``Left``, ``Right``: walk one cell, pushing a box ahead if the cell behind it is free.
    - Observation: the grid, a row a line, one character a cell; with ``hint`` also coordinates, or where box and target lie.
    - Rewards (gym-sokoban): −0.1 a step, +1 a box onto a target, −1 a box off one, +10 when all are on targets.
    - End: when every box is on a target, or when the budgets of turns and actions are spent.
    - Instances: the instance seed makes the level; of a level file's it takes the one numbered seed modulo their count.
    """

    settings_class: ClassVar[type[EnvSettings]] = SokobanSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self._own = cast(SokobanSettings, self.settings)
        self._file = load_levels(self._own.level_file) if self._own.level_file else ()
        self._directions = {word: direction for direction, word in enumerate(self._own.action_words)}
        self._level: Level | None = None
        self._player = self._boxes = 0
        self._ground: list[str] = []

    @property
    def success(self) -> bool:
        """Whether every box is on a target now."""
        return solved(self._playing().board, self._boxes)

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start the level of ``instance_seed``; nothing is left to chance, so ``dynamics_seed`` changes nothing."""
        level = self._pick(instance_seed)
        self._level, self._player, self._boxes = level, level.player, level.boxes
        self._ground = self._draw_ground(level)
        return Observation(self._render(level), {"success": False})

    def step(self, action: str) -> Step:
        """Move. Text that is no action changes nothing and pays 0; a move against a wall pays the step's −0.1."""
        level = self._playing()
        board = level.board
        direction = self._directions.get(action)
        if direction is None:
            word = self.match(action)
            direction = self._directions[word] if word is not None else None
        if solved(board, self._boxes):
            raise EnvironmentFault("sokoban: step() after the end of the episode; call reset() first")
        if direction is None:
            info = {"success": False, "action_is_valid": False, "action_is_effective": False}
            return Step(self._render(level), 0.0, terminated=False, info=info)
        player, boxes = move(board, self._player, self._boxes, direction)
        effective, pay = player != self._player, reward(board, self._boxes, boxes)
        self._player, self._boxes = player, boxes
        done = solved(board, boxes)
        info = {"success": done, "action_is_valid": True, "action_is_effective": effective}
        return Step(self._render(level), pay, terminated=done, info=info)

    def actions(self) -> tuple[str, ...]:
        """The words for up, down, left and right."""
        return self._own.action_words

    def instructions(self) -> str:
        """The goal and the legend, short or in the paper's style."""
        wall, floor, target, box_on, box, player, player_on = tuple(self._own.symbols)
        up, down, left, right = self._own.action_words
        if self._own.wording == "verbose":
            text = (
                "You are solving a Sokoban puzzle. You are the player and you need to push all boxes onto targets. "
                "When you stand next to a box, you push it by moving in its direction. "
                "You cannot push a box into a wall or into another box, and you cannot pull a box.\n"
                f"The meaning of each symbol in the state is: {wall}: wall, {floor}: empty floor, {target}: target, "
                f"{box_on}: box on target, {box}: box, {player}: player, {player_on}: player on target.\n"
                f"{up} moves you one row up, {down} one row down, {left} one column left, {right} one column right.\n"
                f"Rewards: {STEP_REWARD} a move, +{BOX_REWARD} a box pushed onto a target, -{BOX_REWARD} one pushed off, "
                f"+{FINISHED_REWARD} when all boxes are on targets."
            )
        else:
            text = (
                "Sokoban: push every box onto a target. You push by walking into a box; you cannot pull.\n"
                f"{wall} wall, {floor} floor, {target} target, {box} box, {box_on} box on target, {player} you, "
                f"{player_on} you on target."
            )
        if self._own.hint == "coords":
            text += "\nCoordinates are (row, column), counted from (0, 0) at the top left."
        return text

    def content(self) -> str | None:
        """A hash of the level itself: equal for variants that show the same level with other symbols."""
        rows = "\n".join(level_rows(self._playing()))
        return hashlib.blake2b(rows.encode(), digest_size=16).hexdigest()

    def facts(self) -> tuple[Fact, ...]:
        """Where a box and a target lie, seen from the player (any of several may be meant); with ``hint: coords`` the
        coordinates of player, boxes and targets instead.
        """
        board = self._playing().board
        row, column = divmod(self._player, board.width)
        boxes, targets = ([divmod(cell, board.width) for cell in cells(mask)] for mask in (self._boxes, board.targets))
        if self._own.hint == "coords":
            places = (("you|player", [(row, column)]), ("box(?:es)?", boxes), ("targets?", targets))
            return tuple(place_fact(noun, where) for noun, where in places)
        box, target = (self._offsets(mask) for mask in (self._boxes, board.targets))
        return offset_facts("box", box, self._compass()) + offset_facts("target", target, self._compass())

    def anchor(self) -> str:
        """Player and boxes, on the level."""
        return f"{self.content()} {self._player} {self._boxes:x}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning: it restates the offsets where they are told, else names the moves (the first 12 of a turn).

        Where it restates the offsets it leaves the moves to the answer: nothing to copy but the hint.
        """
        if self._own.hint == "offset":
            return f"{self._places(self._playing())} {HEADINGS[int(rng.integers(len(HEADINGS)))]}"
        return f"{OPENERS[int(rng.integers(len(OPENERS)))]} {', '.join(actions[:12])}."

    def plan(self) -> tuple[str, ...] | None:
        """The first moves of a shortest solution from here, as many as a turn may hold; None if there is none (found)."""
        level = self._playing()
        try:
            found = solve(level.board, self._player, self._boxes, max_states=PLAN_STATES)
        except SearchLimitError:
            return None
        if not found:
            return None
        return tuple(self._own.action_words[direction] for direction in found[: self._own.max_actions_per_turn])

    def best_success(self) -> float | None:
        """1.0 if a shortest solution fits into ``max_actions`` and ``max_turns`` × ``max_actions_per_turn``, else 0.0."""
        level = self._playing()
        budget = min(self._own.max_actions, self._own.max_turns * self._own.max_actions_per_turn)
        try:
            return float(solve(level.board, level.player, level.boxes, limit=budget, max_states=PLAN_STATES) is not None)
        except SearchLimitError:
            return None

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``straight`` walks an L to the (first) target, which leg first is random, and ignores walls and boxes."""
        return {"straight": _straight}

    def straight(self, rng: np.random.Generator) -> tuple[str, ...]:
        """The next turn of the walker that sees only where the target lies; on it, a step anywhere."""
        down, right = self._offsets(self._playing().board.targets)[0]
        up_word, down_word, left_word, right_word = self._own.action_words
        legs = [(down_word if down > 0 else up_word,) * abs(down), (right_word if right > 0 else left_word,) * abs(right)]
        first = int(rng.integers(2))
        way = legs[first] + legs[1 - first] or (self._own.action_words[rng.integers(4)],)
        return way[: self._own.max_actions_per_turn]

    def _playing(self) -> Level:
        if self._level is None:
            raise EnvironmentFault("sokoban: no episode has begun; call reset() first")
        return self._level

    def _pick(self, seed: int) -> Level:
        if self._file:
            return self._file[seed % len(self._file)]
        own = self._own
        return generate(
            seed, width=own.width, height=own.height, boxes=own.boxes, min_moves=own.min_moves, max_moves=own.max_moves
        )

    def _draw_ground(self, level: Level) -> list[str]:
        """The characters of walls, floor and targets, with a line break ending each row but the last."""
        wall, floor, target = tuple(self._own.symbols[:3])
        board = level.board
        ground = [
            wall if board.walls >> cell & 1 else target if board.targets >> cell & 1 else floor
            for cell in range(len(board.pushes))
        ]
        for end in range(board.width - 1, len(ground) - 1, board.width):
            ground[end] += "\n"
        return ground

    def _render(self, level: Level) -> str:
        board, symbols = level.board, self._own.symbols
        shown = self._ground.copy()
        for cell in cells(self._boxes):
            shown[cell] = symbols[3 if board.targets >> cell & 1 else 4] + shown[cell][1:]
        shown[self._player] = symbols[6 if board.targets >> self._player & 1 else 5] + shown[self._player][1:]
        grid = "".join(shown)
        if self._own.hint == "none":
            return grid
        return f"{grid}\n{self._places(level) if self._own.hint == 'offset' else self._coordinates(level)}"

    def _compass(self) -> tuple[str, ...]:
        """The words for up, down, left and right as a sentence has them."""
        return tuple(word.lower() for word in self._own.action_words)

    def _offsets(self, mask: int) -> list[tuple[int, int]]:
        """Rows down and columns right from the player to each cell of ``mask``."""
        width = self._playing().board.width
        row, column = divmod(self._player, width)
        return [(cell // width - row, cell % width - column) for cell in cells(mask)]

    def _places(self, level: Level) -> str:
        named = (("Box", self._boxes), ("Target", level.board.targets))
        found = [(noun, offset_parts(*offset, self._compass())) for noun, mask in named for offset in self._offsets(mask)]
        return " ".join(f"{noun} is {', '.join(parts) or 'here'}." for noun, parts in found)

    def _coordinates(self, level: Level) -> str:
        def places(mask: int) -> str:
            return " ".join(f"({cell // level.board.width}, {cell % level.board.width})" for cell in cells(mask))

        return f"You: {places(1 << self._player)}. Boxes: {places(self._boxes)}. Targets: {places(level.board.targets)}."


def _straight(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    if not isinstance(env, SokobanEnv):
        raise EnvironmentFault(f"the straight walker plays sokoban, not {type(env).__name__}")
    return env.straight(rng)


environments.register("sokoban")(EnvPreset(SokobanEnv, "push one box onto its target in a 6 × 6 room"))
environments.register("sokoban-large")(
    EnvPreset(SokobanEnv, "push two boxes onto targets in an 8 × 8 room", {"width": 8, "height": 8, "boxes": 2})
)
environments.register("sokoban-symbols")(
    EnvPreset(SokobanEnv, "the levels of sokoban, drawn with other symbols", {"symbols": "W.GCBA@"})
)
environments.register("sokoban-coords")(
    EnvPreset(SokobanEnv, "the levels of sokoban, with the coordinates of player, box and target", {"hint": "coords"})
)
environments.register("sokoban-offset")(
    EnvPreset(
        SokobanEnv,
        "the levels of sokoban; the observation tells where box and target lie (a help the paper does not give)",
        {"hint": "offset"},
    )
)
