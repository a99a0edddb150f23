"""The contract of an environment, kept at its boundary: what crosses it is right, or an EnvironmentFault says why not."""

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ragen.envs.base import FLAGS, TAGS, Environment, EnvSettings, Observation, Step, action_problem
from ragen.envs.facts import Fact
from ragen.episode import LARGEST_REWARD
from ragen.errors import EnvironmentFault, RagenError
from ragen.modules import told
from ragen.tools import Tool


def guarded(env: Environment) -> "Guarded":
    """``env`` behind its guard (one that is guarded stays as it is)."""
    return env if isinstance(env, Guarded) else Guarded(env)


def made(make: Callable[[], Environment]) -> "Guarded":
    """A new environment behind its guard; where it cannot be made, one that answers all with the fault that says why."""
    try:
        return guarded(make())
    except RagenError:
        raise
    except (Exception, SystemExit) as error:
        return Unmade(error)


def constructed(error: BaseException) -> type[Environment] | None:
    """The class of environments whose constructor raised ``error``, as far as it ran; None where none did."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        unfinished = frame.f_locals.get("self") if frame.f_code.co_name == "__init__" else None
        if isinstance(unfinished, Environment):
            return type(unfinished)
    return None


def unmade(error: BaseException) -> str:
    """That an environment could not be made, and why."""
    cls = constructed(error)
    return f"{cls.__name__ if cls is not None else 'an environment'} could not be made: {told(error, cls)}"


class Guarded(Environment):
    """An environment whose exceptions and wrong answers are EnvironmentFaults that name class and method.

    Numbers and bools of NumPy or torch become Python's own; nothing else is converted.
    """

    def __init__(self, inner: Environment) -> None:
        super().__init__(inner.settings)
        self.inner, self.name = inner, type(inner).__name__
        self._words: tuple[str, ...] | None = None

    @property
    def success(self) -> bool:
        """The task's criterion, a bool."""
        return self._bool("success", self._call("success", lambda: self.inner.success))

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start an episode."""
        seeds = {"instance_seed": instance_seed, "dynamics_seed": dynamics_seed}
        first = self._call("reset()", lambda: self.inner.reset(**seeds))
        if not isinstance(first, Observation):
            raise self._broken("reset()", "a ragen Observation", first)
        self._text("reset(): an observation", first.text)
        return first

    def step(self, action: str) -> Step:
        """Execute an action; the answer has a finite float as its reward and bools as its flags."""
        what = f"step({_shown(action)})"
        step = self._call(what, lambda: self.inner.step(action))
        if not isinstance(step, Step):
            raise self._broken(what, "a ragen Step", step)
        self._text(f"{what}: an observation", step.observation)
        self._text(f"{what}: told", step.told)
        if not isinstance(step.info, Mapping):
            raise self._broken(f"{what}: info", "a mapping", step.info)
        info = self._call(f"{what}: info", lambda: dict(step.info))
        flags = {flag: self._bool(f"{what}: info['{flag}']", info[flag]) for flag in FLAGS if flag in info}
        return replace(
            step,
            reward=self._number(f"{what}: a reward", step.reward, LARGEST_REWARD),
            terminated=self._bool(f"{what}: terminated", step.terminated),
            truncated=self._bool(f"{what}: truncated", step.truncated),
            info={**info, **flags},
        )

    def actions(self) -> tuple[str, ...]:
        """The action words: at least one, each of them one that a reply can name."""
        words = self._call("actions()", self.inner.actions)
        if self._words is None or (words is not self._words and not self._alike(words)):
            self._words = self._checked_words("actions()", words)
        return self._words

    def _alike(self, words: Any) -> bool:
        """Whether they are the words checked last; only texts of Python's own are compared, for others may raise."""
        return type(words) is tuple and {str}.issuperset(map(type, words)) and words == self._words

    def forms(self) -> tuple[str, ...]:
        """The actions as the prompt lists them."""
        if type(self.inner).forms is Environment.forms:
            return self.actions()
        return self._checked_words("forms()", self._call("forms()", self.inner.forms))

    def examples(self) -> tuple[str, ...]:
        """The actions that a person is shown as examples."""
        if type(self.inner).examples is Environment.examples:
            return self.actions()
        return self._checked_words("examples()", self._call("examples()", self.inner.examples))

    def instructions(self) -> str:
        """What the task is."""
        return self._text("instructions()", self._call("instructions()", self.inner.instructions))

    def match(self, text: str) -> str | None:
        """The action that ``text`` names, or None."""
        what = f"match({_shown(text)})"
        action = self._call(what, lambda: self.inner.match(text))
        return None if action is None else self._text(what, action)

    def problem(self, text: str) -> str:
        """Why ``text`` names no action."""
        what = f"problem({_shown(text)})"
        return self._text(what, self._call(what, lambda: self.inner.problem(text)))

    def tools(self) -> tuple[Tool, ...] | None:
        """What the agent may call, or None."""
        tools = self._call("tools()", self.inner.tools)
        if tools is not None and (not isinstance(tools, tuple) or not all(isinstance(tool, Tool) for tool in tools)):
            raise self._broken("tools()", "a tuple of ragen.tools.Tool, or None", tools)
        names = [tool.name for tool in tools or ()]
        if len(set(names)) < len(names):  # a call says a name and nothing else
            raise self._broken("tools()", "tools of different names", names)
        return tools

    def content(self) -> str | None:
        """What identifies the initial state, or None."""
        content = self._call("content()", self.inner.content)
        return None if content is None else self._text("content()", content)

    def facts(self) -> tuple[Fact, ...]:
        """What is so in this state."""
        facts = self._call("facts()", self.inner.facts)
        if not isinstance(facts, tuple | list) or not all(isinstance(fact, Fact) for fact in facts):
            raise self._broken("facts()", "a tuple of ragen.envs.Fact", facts)
        return tuple(facts)

    def anchor(self) -> str | None:
        """What identifies the present state, or None."""
        anchor = self._call("anchor()", self.inner.anchor)
        return None if anchor is None else self._text("anchor()", anchor)

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """A demonstration's reasoning, without tags."""
        text = self._text("thought()", self._call("thought()", lambda: self.inner.thought(rng, actions)))
        if any(tag in text for tag in TAGS):
            raise self._broken("thought()", f"a text without {', '.join(TAGS)}", text)
        return text

    def plan(self) -> tuple[str, ...] | None:
        """The oracle's next turn, of actions that are possible now, or None."""
        return self._turn("plan()", self._call("plan()", self.inner.plan))

    def best_success(self) -> float | None:
        """The success probability of best play, in [0, 1], or None."""
        best = self._call("best_success()", self.inner.best_success)
        if best is None:
            return None
        number = self._number("best_success()", best, 1.0 + 1e-9)
        if number < 0:
            raise self._broken("best_success()", "a probability in [0, 1]", best)
        return min(number, 1.0)

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """The environment's own reference players; they are given the environment itself, not its guard."""
        players = self._call("players()", self.inner.players)
        if not isinstance(players, Mapping) or not all(map(callable, players.values())):
            raise self._broken("players()", "a mapping from names to functions", players)
        return {str(name): self._player(str(name), player) for name, player in players.items()}

    def _player(self, name: str, player: Callable[..., Any]) -> Callable[[Environment, np.random.Generator], Sequence[str]]:
        def play(env: Environment, rng: np.random.Generator) -> Sequence[str]:
            guard = guarded(env)
            what = f"players()['{name}']"
            return guard._turn(what, guard._call(what, lambda: player(guard.inner, rng))) or ()

        return play

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except (Exception, SystemExit) as error:  # one that leaves must not end the run as if it were done
            raise EnvironmentFault(f"{self.name}.{what} raised {told(error, type(self.inner))}") from error

    def _turn(self, what: str, words: Any) -> tuple[str, ...] | None:
        if words is None:
            return None
        turn = self._checked_words(what, words)
        known = self.actions()
        if foreign := [word for word in turn if word not in known and self.match(word) != word]:
            raise self._broken(what, "only actions, as match() gives them back", foreign[0])
        return turn

    def _checked_words(self, what: str, words: Any) -> tuple[str, ...]:
        plain: tuple[str, ...] = self._call(what, lambda: tuple(words)) if isinstance(words, tuple | list) else ()
        if not plain:
            raise self._broken(what, "one action word or more, as a tuple", words)
        for word in plain:
            if type(word) is not str:
                self._call(what, partial(_looked_up, word))
            if self.tools() is not None and isinstance(word, str):
                continue  # a call: what it holds is no matter of separators
            if problem := action_problem(word):
                raise EnvironmentFault(f"{self.name}.{what}: {problem}")
        return plain

    def _text(self, what: str, value: Any) -> str:
        if not isinstance(value, str):
            raise self._broken(what, "a str", value)
        return value

    def _bool(self, what: str, value: Any) -> bool:
        if not isinstance(value, bool | np.bool_):
            hint = ": make it a property" if callable(value) else ""
            raise self._broken(what, "a bool", value, hint)
        return bool(value)

    def _number(self, what: str, value: Any, largest: float) -> float:
        """A finite float of at most ``largest`` in size; numbers of NumPy and torch count, bools and texts do not."""
        number = math.nan
        if hasattr(value, "__float__") and not isinstance(value, bool | np.bool_):
            number = self._call(what, lambda: float(value))
        if not abs(number) <= largest:
            raise self._broken(what, f"a finite number of at most {largest:g} in size", value)
        return number

    def _broken(self, what: str, allowed: str, value: object, hint: str = "") -> EnvironmentFault:
        return EnvironmentFault(f"{self.name}.{what} must be {allowed}, got {type(value).__name__} {_shown(value)}{hint}")


class Unmade(Guarded):
    """Stands for an environment that could not be made: whatever is asked of it is a fault."""

    def __init__(self, error: BaseException) -> None:
        Environment.__init__(self, EnvSettings())
        self.inner, self.name, self._words = self, type(self).__name__, None
        self._why = unmade(error)

    def _call(self, what: str, function: Callable[[], Any]) -> Any:
        raise EnvironmentFault(self._why)


def _looked_up(word: object) -> None:
    """Do with a text of a class of its own what is done with action words later: where it breaks, it breaks here."""
    if isinstance(word, str):
        _ = hash(word), word == "", word != "", repr(word)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
