"""An environment that acts in a worker: to whoever plays an episode it looks like any other."""

import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from ragen.envs.base import Environment, Observation, Step
from ragen.envs.facts import Fact
from ragen.envs.guard import Guarded
from ragen.envs.registry import Factory
from ragen.envs.workers.host import Host, Lost
from ragen.envs.workers.stage import MAKE, SUCCESS, Question
from ragen.errors import EnvironmentFault

_NAMES = count()


class Remote(Guarded):
    """Asks its worker; the guard stands there, so this one checks nothing again.

    Where the worker was replaced since the last question, the episode is played again there first, from its seeds and
    actions. If any text, reward or flag comes out differently, it cannot be kept, and is a fault.
    """

    def __init__(self, host: Host, make: Factory, pattern: Guarded) -> None:
        super().__init__(pattern.inner)  # never acted in: it tells name, settings and tools
        self.host, self.number = host, next(_NAMES)
        self._source = host.source(make)
        self._generation: int | None = None
        weakref.finalize(self, host.forgotten.append, self.number).atexit = False
        self._played: list[tuple[Question, Observation | Step]] = []

    @property
    def success(self) -> bool:
        """The task's criterion."""
        return bool(self._asked(SUCCESS))

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        """Start an episode."""
        self._played.clear()
        first: Observation = self._asked("reset", instance_seed=instance_seed, dynamics_seed=dynamics_seed)
        return first

    def step(self, action: str) -> Step:
        """Execute an action."""
        step: Step = self._asked("step", action=action)
        return step

    def actions(self) -> tuple[str, ...]:
        """The action words."""
        return tuple(self._asked("actions"))

    def forms(self) -> tuple[str, ...]:
        """What the prompt lists."""
        return tuple(self._asked("forms"))

    def instructions(self) -> str:
        """What the task is."""
        return str(self._asked("instructions"))

    def match(self, text: str) -> str | None:
        """The action that ``text`` names."""
        action: str | None = self._asked("match", text=text)
        return action

    def problem(self, text: str) -> str:
        """Why ``text`` names no action."""
        return str(self._asked("problem", text=text))

    def content(self) -> str | None:
        """What identifies the initial state."""
        content: str | None = self._asked("content")
        return content

    def facts(self) -> tuple[Fact, ...]:
        """What is so in this state."""
        return tuple(self._asked("facts"))

    def anchor(self) -> str | None:
        """What identifies the present state."""
        anchor: str | None = self._asked("anchor")
        return anchor

    def plan(self) -> tuple[str, ...] | None:
        """The oracle's next turn."""
        plan: tuple[str, ...] | None = self._asked("plan")
        return plan

    def best_success(self) -> float | None:
        """The success probability of best play."""
        best: float | None = self._asked("best_success")
        return best

    def thought(self, rng: np.random.Generator, actions: Sequence[str]) -> str:
        """Not here: a generator's state would stay in the worker."""
        raise NotImplementedError("demonstrations are made without workers")

    def players(self) -> Mapping[str, Callable[[Environment, np.random.Generator], Sequence[str]]]:
        """None: reference players act without workers."""
        return {}

    def _asked(self, method: str, **arguments: Any) -> Any:
        question = Question(self.number, method, arguments)
        try:
            with self.host.lock:
                self.host.ready()
                if self._generation != self.host.generation:
                    self._begin()
                answer = self.host.ask(question)
        except Lost as lost:
            told = f"({next(iter(arguments.values()))!r})" if method == "step" else "()"
            raise EnvironmentFault(f"{self.name}.{method}{told} {lost}") from None
        if answer.fault is not None:
            raise EnvironmentFault(answer.fault)
        if method in ("reset", "step"):
            self._played.append((question, answer.value))
        return answer.value

    def _begin(self) -> None:
        """Make the environment in the present worker, and bring it to where it was."""
        forget = [self.host.forgotten.pop() for _ in range(len(self.host.forgotten))]
        made = self.host.ask(Question(self.number, MAKE, {"source": self._source, "forget": forget}))
        if made.fault is not None:
            raise EnvironmentFault(made.fault)
        for question, before in self._played:
            now = self.host.ask(question)
            if now.fault is not None or _core(now.value) != _core(before):
                raise EnvironmentFault(
                    f"{self.name}: its worker was replaced, and {question.method}() did not give the same again from the "
                    f"same seeds and actions ({now.fault or 'another observation, reward or end'}), so the episode is lost"
                )
        self._generation = self.host.generation


def _core(value: Observation | Step) -> tuple[object, ...]:
    if isinstance(value, Observation):
        return (value.text,)
    return value.told, value.observation, value.reward, value.terminated, value.truncated
