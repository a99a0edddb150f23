"""GSM8K as an environment: a word problem, a calculator or Python, one number as the answer."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import ClassVar, Literal, cast

import numpy as np
from pydantic import Field

from ragen.envs.base import Environment, EnvSettings
from ragen.envs.gsm8k.problems import Problem, load_problems
from ragen.envs.numbers import numbers, read_answer
from ragen.envs.registry import EnvPreset, environments
from ragen.envs.tool_environment import ToolEnvironment, ToolSettings
from ragen.errors import ConfigError, EnvironmentFault
from ragen.seeding import derive
from ragen.tools import Tool, ToolError, tool
from ragen.tools.calculator import calculator, evaluate, shown
from ragen.tools.call import Call, final, is_final
from ragen.tools.sandbox import check, python

TOOLS: Mapping[str, tuple[Tool, ...]] = {"calculator": (calculator,), "python": (tool(python),), "none": ()}
USED = {"calculator": ", use the calculator for arithmetic,", "python": ", use Python for arithmetic,", "none": ""}
VAGUE = ("I work it out.", "Let me calculate.", "I try this.", "So I go on.", "This may be it.")
SAID_NUMBERS = 8  # of a question, that the random player draws from


class Gsm8kSettings(ToolSettings):
    """Settings of ``Gsm8k``."""

    file: str = Field(
        "", description="needed: the problems, train.jsonl or test.jsonl of GSM8K, which are not part of ragen"
    )
    tools: Literal["calculator", "python", "none"] = Field(
        "calculator", description="what may be called: python runs programs in a sandbox (Linux); none = only the answer"
    )
    min_steps: int = Field(0, ge=0, description="difficulty: least number of calculations in the solution")
    max_steps: int = Field(100, ge=0, description="difficulty: greatest number of calculations in the solution")


class Gsm8k(ToolEnvironment):
    """Answer a word problem with a number (GSM8K, arXiv 2110.14168).

    - Actions: ``calculator`` with an ``expression``, or ``python`` with ``code``, and the final answer.
    - Observation: the question; then what the calculator says, or the program prints.
    - Rewards: 1 for the right number, else 0. Right is exact equality with the number behind ``####``. Commas, currency
      signs and units do not matter; of an equation what stands behind the last ``=`` counts; several numbers are wrong.
    - End: with the answer. It never truncates; the budgets are the rollout's.
    - Instances: the instance seed picks a problem of the file; nothing is left to chance.

    Needs ``file``, which is no part of ragen: train.jsonl or test.jsonl of https://github.com/openai/grade-school-math
    (grade_school_math/data, MIT licence).

    With ``python`` a SandboxError is raised where programs cannot be walled in (docs/sandbox.md). The oracle calls for each
    calculation of the file's solution, as far as the budgets allow, then answers. The player ``last_number`` answers the
    last number of the question.
    """

    settings_class: ClassVar[type[EnvSettings]] = Gsm8kSettings

    def __init__(self, settings: EnvSettings | None = None) -> None:
        super().__init__(settings)
        self._own = cast(Gsm8kSettings, self.settings)
        self._problems = _chosen(self._own.file, self._own.min_steps, self._own.max_steps)
        self._problem: Problem | None = None
        if self._own.tools == "python":
            check()

    def start(self, instance_seed: int, dynamics_seed: int) -> str:
        """Pick the problem."""
        del dynamics_seed
        self._problem = self._problems[derive(instance_seed, "gsm8k", "problem") % len(self._problems)]
        return self._problem.question

    def tools(self) -> tuple[Tool, ...]:
        """What the settings give."""
        return TOOLS[self._own.tools]

    def judge(self, answer: str) -> float:
        """1 for the right number."""
        return float(read_answer(answer) == self._given().answer)

    def solution(self) -> str | None:
        """The number: as a decimal one where that is exact, else as a fraction."""
        answer = self._given().answer
        decimal = shown(answer)
        return decimal if read_answer(decimal) == answer else str(answer)

    def actions(self) -> tuple[str, ...]:
        """Sums, differences and products of neighbouring numbers of the question, and each of its numbers as the answer."""
        said = list(dict.fromkeys(map(shown, numbers(self._given().question))))[:SAID_NUMBERS] or ["1"]
        pairs = list(pairwise(said)) if self.tools() else []
        sums = [f"{a} {sign} {b}" for a, b in pairs for sign in "+-*"]
        return (*(self._calculate(each) for each in sums), *map(final, said))

    def instructions(self) -> str:
        """The task."""
        if self._own.wording == "verbose":
            return (
                f"You are solving a mathematical word problem. Work it out step by step{USED[self._own.tools]} and give the "
                "answer as a single number."
            )
        return "Solve the word problem. The answer is one number."

    def content(self) -> str | None:
        """A hash of the question."""
        return hashlib.blake2b(self._given().question.encode(), digest_size=16).hexdigest()

    def plan(self) -> tuple[str, ...] | None:
        """The calculations that are left, then the answer."""
        last = super().plan()
        if last is None or not self.tools():
            return last
        per_turn = min(self._own.max_actions_per_turn, self._own.max_actions - 1)
        room = min(per_turn * (self._own.max_turns - 1), self._own.max_actions - 1)
        left = self._computable()[: max(room, 0)][self.calls_made :]
        return tuple(self._calculate(each) for each in left[:per_turn]) or last

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """The line of the file's solution that the oracle's actions belong to; a few empty words for any others."""
        lines = self._given().lines
        if not lines or tuple(actions) != self.plan():
            return VAGUE[int(rng.integers(len(VAGUE)))]
        return lines[-1 if is_final(actions[0]) else min(self.calls_made, len(lines) - 1)]

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``last_number`` answers the last number of the question."""
        return {"last_number": _last_number}

    def guess(self) -> str:
        """The answer of the player ``last_number``."""
        return shown((*numbers("1"), *numbers(self._given().question))[-1])

    def _computable(self) -> list[str]:
        """What the file's solution computes, as far as the calculator can read it."""
        found = []
        for calculation in self._given().calculations:
            try:
                evaluate(calculation)
            except ToolError:
                continue
            found.append(calculation)
        return found

    def _calculate(self, expression: str) -> str:
        if self._own.tools == "python":
            return str(Call("python", {"code": f"print({expression})"}))
        return str(Call("calculator", {"expression": expression}))

    def _given(self) -> Problem:
        if self._problem is None:
            raise EnvironmentFault("gsm8k: no episode has begun; call reset() first")
        return self._problem


@lru_cache(maxsize=8)
def _chosen(file: str, least: int, most: int) -> tuple[Problem, ...]:
    """The problems of a file with so many calculations."""
    chosen = tuple(problem for problem in load_problems(file) if least <= len(problem.calculations) <= most)
    if not chosen:
        raise ConfigError(
            f"env.min_steps is {least} and env.max_steps {most}, but no problem of {file!r} has as "
            "many calculations: widen them"
        )
    return chosen


def _last_number(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    del rng
    if not isinstance(env, Gsm8k):
        raise EnvironmentFault(f"the player last_number plays gsm8k, not {type(env).__name__}")
    return (final(env.guess()),)


environments.register("gsm8k")(EnvPreset(Gsm8k, "word problems with a calculator; needs env.file (train.jsonl of GSM8K)"))
environments.register("gsm8k-python")(
    EnvPreset(
        Gsm8k,
        "gsm8k with Python programs in a sandbox instead of the calculator (Linux); needs env.file",
        {"tools": "python"},
    )
)
environments.register("gsm8k-plain")(
    EnvPreset(Gsm8k, "gsm8k without tools: one answer; needs env.file", {"tools": "none", "max_turns": 1, "max_actions": 1})
)
