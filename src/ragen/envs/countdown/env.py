"""Countdown as a text environment."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import ClassVar

import numpy as np
from pydantic import Field, model_validator

from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.envs.countdown.expressions import leaves, make_instance, parsed, solve, spelled, value
from ragen.envs.registry import EnvPreset, environments
from ragen.errors import EnvironmentFault

OPENERS = ("I try", "Maybe", "Let me compute", "This could work:", "I combine them as", "How about")


class CountdownSettings(EnvSettings):
    """Settings of ``Countdown``; the count of numbers is the difficulty."""

    max_turns: int = Field(3, ge=1, description="policy replies an episode at most: tries")
    max_actions: int = Field(3, ge=1, description="expressions an episode at most")
    max_actions_per_turn: int = Field(1, ge=1, description="expressions a turn at most")
    numbers: int = Field(
        4, ge=2, le=5, description="how many numbers there are; the target needs all (of five: four or five)"
    )
    largest: int = Field(25, ge=2, le=100, description="the largest number")
    least_target: int = Field(10, ge=0, description="the least target")
    greatest_target: int = Field(99, ge=1, description="the greatest target")

    @model_validator(mode="after")
    def _possible(self) -> "CountdownSettings":
        if self.least_target > self.greatest_target:
            raise ValueError(
                f"env.least_target is {self.least_target}, more than env.greatest_target {self.greatest_target}: lower it"
            )
        return self


class Countdown(Environment):
    """Write an expression of given numbers that comes to a target.

    - Actions: an expression with ``+ - * /`` and brackets over the numbers, each at most once; ``×``, ``÷`` and ``−`` are
      read too, and an ``= …`` behind it is dropped. The prompt cannot list them: ``actions()`` are those without brackets.
    - Observation: the numbers and the target; after a try, what it came to or what is wrong with it.
    - Rewards: 1 for the target, else 0. Values are exact (rational), so 1 / 3 * 3 is 1.
    - End: terminated by the target. Success: the target was reached. A wrong try changes nothing but the budget.
    - Instances: numbers of 1 … ``largest`` and a target that needs all of them (of five: four or five);
      nothing is left to chance.

    After TinyZero's Countdown (github.com/Jiayi-Pan/TinyZero), which asks for one expression that uses every number.
    """

    settings_class: ClassVar[type[EnvSettings]] = CountdownSettings
    settings: CountdownSettings

    def __init__(self, settings: CountdownSettings | None = None) -> None:
        super().__init__(settings)
        self._numbers: tuple[int, ...] = ()
        self._target = 0
        self._solved = False

    @property
    def success(self) -> bool:
        """Whether the target was reached."""
        return self._solved

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Draw numbers and target by the instance; ConfigError where none fits the settings."""
        own = self.settings
        self._numbers, self._target = make_instance(
            instance_seed, own.numbers, own.largest, own.least_target, own.greatest_target
        )
        self._solved = False
        return Observation(self._question(), {"success": False})

    def step(self, action: str) -> Step:
        """Try an expression; text that is none changes nothing."""
        if not self._numbers or self._solved:
            raise EnvironmentFault("countdown: step() outside an episode; call reset() first")
        expression = self.match(action)
        told = self._try(expression) if expression is not None else "That is no expression."
        info = {"success": self._solved, "action_is_valid": expression is not None, "action_is_effective": self._solved}
        return Step(self._question(), float(self._solved), terminated=self._solved, info=info, told=told)

    def actions(self) -> tuple[str, ...]:
        """All expressions of the numbers in their order, without brackets: what a random player tries."""
        first, *rest = self._numbers or (1, 1)
        return tuple(
            f"{first}{''.join(f' {sign} {number}' for sign, number in zip(signs, rest, strict=True))}"
            for signs in product("+-*/", repeat=len(rest))
        )

    def forms(self) -> tuple[str, ...]:
        """What an action looks like."""
        return ("an expression",)

    def match(self, text: str) -> str | None:
        """The expression in canonical spelling, whatever numbers it uses; None for anything else."""
        tree = parsed(text)
        return None if tree is None else spelled(tree)

    def instructions(self) -> str:
        """The task and its rules."""
        if self.settings.wording == "verbose":
            return (
                "You are solving a Countdown puzzle. Combine the given numbers with +, -, *, / and brackets so that the "
                "result is the target. You may use each number at most once, and no other number. Division is exact. "
                "Reaching the target gives a reward of 1, anything else 0."
            )
        return "Countdown: reach the target with the numbers, each at most once, by + - * / and brackets."

    def content(self) -> str | None:
        """The numbers in rising order, and the target."""
        return f"countdown {' '.join(map(str, sorted(self._begun())))} = {self._target}"

    def anchor(self) -> str:
        """The instance, and whether it is solved: tries change nothing."""
        return f"{self.content()} {'solved' if self._solved else ''}"

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A short reasoning that names the expression and its value."""
        tree = parsed(actions[0])
        worth = None if tree is None else value(tree)
        result = f" = {worth}" if worth is not None else ""
        return f"{OPENERS[int(rng.integers(len(OPENERS)))]} {actions[0]}{result}."

    def plan(self) -> tuple[str, ...] | None:
        """An expression that comes to the target, by exhaustive search; None at the end."""
        found = None if self._solved else solve(self._begun(), Fraction(self._target))
        action = None if found is None else self.match(found)
        return None if action is None else (action,)

    def best_success(self) -> float:
        """1.0: every instance can be solved in one try."""
        return 1.0

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """``closest`` takes the expression without brackets that comes nearest to the target, one a try."""
        return {"closest": _closest}

    def closest(self) -> tuple[str, ...]:
        """The next turn of a player that knows no brackets."""
        values = {word: value(tree) for word in self.actions() if (tree := parsed(word)) is not None}
        known = {word: worth for word, worth in values.items() if worth is not None}
        return (min(known, key=lambda word: abs(known[word] - self._target)),)

    def _begun(self) -> tuple[int, ...]:
        if not self._numbers:
            raise EnvironmentFault("countdown: no episode has begun; call reset() first")
        return self._numbers

    def _question(self) -> str:
        return f"Numbers: {', '.join(map(str, self._numbers))}. Target: {self._target}."

    def _try(self, expression: str) -> str:
        tree = parsed(expression)
        left = list(self._numbers)
        for number in () if tree is None else leaves(tree):
            if number not in left:
                more = "more often than it is there" if number in self._numbers else "which is not among the numbers"
                return f"{expression} uses {number}, {more}."
            left.remove(number)
        worth = None if tree is None else value(tree)
        if worth is None:
            return f"{expression} divides by 0."
        self._solved = worth == self._target
        return f"{expression} = {worth}{'' if self._solved else f', not {self._target}'}."


def _closest(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    if not isinstance(env, Countdown):
        raise EnvironmentFault(f"the closest player plays countdown, not {type(env).__name__}")
    return env.closest()


def _register(name: str, about: str, numbers: int) -> None:
    environments.register(name)(EnvPreset(Countdown, about, {"numbers": numbers}))


_register("countdown", "reach a target with four numbers, + - * / and brackets; 3 tries", 4)
_register("countdown-3", "countdown with three numbers", 3)
_register("countdown-5", "countdown with five numbers", 5)
