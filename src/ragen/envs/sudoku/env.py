"""Sudoku as a text environment."""

import re
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.envs.registry import EnvPreset, environments
from ragen.envs.sudoku.grids import Grid, candidates, make_puzzle
from ragen.errors import EnvironmentFault

BLANK = "_"
MOST_BLANKS = {4: 12, 9: 50}  # beyond, puzzles with one solution are rare, or slow to find
OPENERS = ("I fill in", "Next I place", "Only these fit:", "Row, column, digit:", "I put", "So I write")


class SudokuSettings(EnvSettings):
    """Settings of ``Sudoku``; the number of blanks is the difficulty."""

    max_turns: int = Field(4, ge=1, description="policy replies an episode at most")
    max_actions: int = Field(12, ge=1, description="digits written an episode at most")
    max_actions_per_turn: int = Field(4, ge=1, description="digits written a turn at most")
    size: Literal[4, 9] = Field(4, description="rows, columns and digits: 4 (boxes of 2 × 2) or 9 (3 × 3)")
    blanks: int = Field(6, ge=1, description="blank cells at the start")

    @model_validator(mode="after")
    def _possible(self) -> "SudokuSettings":
        budget = min(self.max_actions, self.max_turns * self.max_actions_per_turn)
        if self.blanks > budget:
            raise ValueError(
                f"env.blanks is {self.blanks}, but an episode has {budget} actions (env.max_actions, env.max_turns · "
                "env.max_actions_per_turn): lower it, or raise these"
            )
        if self.blanks > MOST_BLANKS[self.size]:
            most = MOST_BLANKS[self.size]
            raise ValueError(f"env.blanks is {self.blanks}: a {self.size} × {self.size} grid takes at most {most}")
        return self


class Sudoku(Environment):
    """Fill the blanks so that each row, column and box holds every digit once.

    - Actions: ``row column digit``, such as ``1 3 2``, counted from 1 at the top left. A digit may be written over one of
      the player's own. A given cell, and a digit that its row, column or box has already, are refused.
    - Observation: the grid, a row a line, ``_`` for a blank; after a refusal, why.
    - Rewards: the change in the share of blanks that hold the solution's digit, and 1 for the full grid.
    - End: terminated by the full grid. Success: the same.
    - Instances: a puzzle with one solution and ``blanks`` blanks; nothing is left to chance.
    """

    settings_class: ClassVar[type[EnvSettings]] = SudokuSettings
    settings: SudokuSettings

    def __init__(self, settings: SudokuSettings | None = None) -> None:
        super().__init__(settings)
        self._given: Grid = ()
        self._solution: Grid = ()
        self._grid: list[int] = []

    @property
    def success(self) -> bool:
        """Whether the grid is full (it then is the solution: there is only one)."""
        return bool(self._grid) and 0 not in self._grid

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start the puzzle of the instance."""
        self._given, self._solution = make_puzzle(instance_seed, self.settings.size, self.settings.blanks)
        self._grid = list(self._given)
        return Observation(self._render(), {"success": False})

    def step(self, action: str) -> Step:
        """Write a digit; text that is no action changes nothing."""
        self._playing()
        if self.success:
            raise EnvironmentFault("sudoku: step() after the end of the episode; call reset() first")
        place = self._read(action)
        if place is None:
            return self._answer("That is no row, column and digit.", valid=False)
        cell, digit = place
        if refused := self._refused(cell, digit):
            return self._answer(refused)
        before, self._grid[cell] = self._grid[cell], digit
        right = self._solution[cell]
        pay = ((digit == right) - (before == right)) / self.settings.blanks + float(self.success)
        return self._answer("", reward=pay, effective=digit != before)

    def actions(self) -> tuple[str, ...]:
        """Every row, column and digit of the cells that were not given."""
        size = self.settings.size
        open_cells = [cell for cell, digit in enumerate(self._given or (0,) * size**2) if not digit]
        return tuple(self._named(cell, digit) for cell in open_cells for digit in range(1, size + 1))

    def forms(self) -> tuple[str, ...]:
        """What an action looks like."""
        return ("row column digit",)

    def match(self, text: str) -> str | None:
        """The action that three numbers name, whatever stands between them."""
        place = self._read(text)
        return None if place is None else self._named(*place)

    def instructions(self) -> str:
        """The rules and how cells are named."""
        size = self.settings.size
        box = {4: "2 × 2", 9: "3 × 3"}[size]
        if self.settings.wording == "verbose":
            return (
                f"You are solving a {size} × {size} Sudoku. Fill every blank ({BLANK}) with a digit from 1 to {size} so "
                f"that each row, each column and each {box} box holds every digit exactly once. An action names row, column "
                "and digit, counted from 1 at the top left: row 1, column 3, digit 2 is written 1 3 2. You cannot change "
                "given digits. Digits that already stand in the row, column or box are refused. There is one solution."
            )
        return (
            f"Sudoku: each row, column and {box} box holds 1 to {size} once. {BLANK} is blank. Rows and columns count from "
            "1 at the top left."
        )

    def content(self) -> str | None:
        """The puzzle, row by row."""
        self._playing()
        return f"sudoku {''.join(map(str, self._given))}"

    def anchor(self) -> str:
        """The puzzle and the present grid."""
        return f"{self.content()} {''.join(map(str, self._grid))}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning that names the digits written (the first 4 of a longer turn)."""
        return f"{OPENERS[int(rng.integers(len(OPENERS)))]} {', '.join(actions[:4])}."

    def plan(self) -> tuple[str, ...] | None:
        """Digits of the solution, as many as a turn may hold; wrong ones of the player are written over first.

        None at the end. A blank whose digit is kept away by a wrong one comes after it, so every action is possible.
        """
        self._playing()
        wrong = [cell for cell, digit in enumerate(self._grid) if digit and digit != self._solution[cell]]
        blank = [cell for cell, digit in enumerate(self._grid) if not digit]
        grid, chosen = list(self._grid), []
        waiting = [*wrong, *blank]
        while waiting:
            free = [cell for cell in waiting if self._solution[cell] in candidates(grid, self.settings.size, cell)]
            if not free:  # wrong digits keep one another away: no way leads on without rubbing out
                break
            waiting.remove(free[0])
            grid[free[0]] = self._solution[free[0]]
            chosen.append(self._named(free[0], self._solution[free[0]]))
        return tuple(chosen[: self.settings.max_actions_per_turn]) or None

    def best_success(self) -> float:
        """1.0: the settings give an action for each blank at least."""
        return 1.0

    def _playing(self) -> None:
        if not self._grid:
            raise EnvironmentFault("sudoku: no episode has begun; call reset() first")

    def _read(self, text: str) -> tuple[int, int] | None:
        size = self.settings.size
        numbers = re.findall(r"\d+", text, re.ASCII) if len(text) < 80 else []
        if len(numbers) != 3 or any(len(number) > 1 or not 1 <= int(number) <= size for number in numbers):
            return None
        row, column, digit = map(int, numbers)
        return (row - 1) * size + column - 1, digit

    def _named(self, cell: int, digit: int) -> str:
        row, column = divmod(cell, self.settings.size)
        return f"{row + 1} {column + 1} {digit}"

    def _refused(self, cell: int, digit: int) -> str:
        if self._given[cell]:
            return f"{self._named(cell, digit)}: that cell is given."
        if digit not in candidates(self._grid, self.settings.size, cell):
            return f"{self._named(cell, digit)}: its row, column or box has a {digit} already."
        return ""

    def _answer(self, told: str, *, reward: float = 0.0, valid: bool = True, effective: bool = False) -> Step:
        info = {"success": self.success, "action_is_valid": valid, "action_is_effective": effective}
        return Step(self._render(), reward, terminated=self.success, info=info, told=told)

    def _render(self) -> str:
        size = self.settings.size
        shown = [str(digit) if digit else BLANK for digit in self._grid]
        return "\n".join(" ".join(shown[begin : begin + size]) for begin in range(0, size * size, size))


environments.register("sudoku")(EnvPreset(Sudoku, "fill the 6 blanks of a 4 × 4 sudoku"))
environments.register("sudoku-9")(
    EnvPreset(
        Sudoku,
        "fill the 20 blanks of a 9 × 9 sudoku",
        {"size": 9, "blanks": 20, "max_turns": 6, "max_actions": 36, "max_actions_per_turn": 6},
    )
)
