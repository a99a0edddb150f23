"""The environments that one worker has, and what it answers: the same in a process and in a thread."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ragen.envs.base import Environment
from ragen.envs.guard import Guarded, guarded, unmade
from ragen.errors import EnvironmentFault, RagenError

MAKE, SUCCESS = "make", "success"


class Question(NamedTuple):
    """``method`` of the environment called ``name``, or MAKE; SUCCESS is the property."""

    name: int
    method: str
    arguments: Mapping[str, Any]


class Answer(NamedTuple):
    """What the method gave, or the ``fault`` that it is."""

    value: Any = None
    fault: str | None = None


class Stage:
    """Environments by name, each behind its guard, so that what is wrong is told in the same words as without workers."""

    def __init__(self, make: Callable[[Any], Environment]) -> None:
        self._make = make
        self._envs: dict[int, Guarded] = {}

    def answer(self, question: Question) -> Answer:
        """Do what is asked; whatever an environment raises is an answer."""
        name, method, arguments = question
        if method == MAKE:
            for each in arguments["forget"]:
                self._envs.pop(each, None)
            return self._made(name, arguments["source"])
        env = self._envs[name]
        try:
            return Answer(env.success if method == SUCCESS else getattr(env, method)(**arguments))
        except EnvironmentFault as fault:
            return Answer(fault=str(fault))

    def _made(self, name: int, source: Any) -> Answer:
        try:
            env = guarded(self._make(source))
        except RagenError as error:
            return Answer(fault=str(error))
        except (Exception, SystemExit) as error:
            return Answer(fault=unmade(error))
        self._envs[name] = env
        return Answer((env.name, env.settings.model_dump(mode="json")))
