"""Who does the environments' work: what a collection asks of them, and the plain way, one call after another."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from ragen.envs.base import Environment
from ragen.envs.guard import made
from ragen.envs.registry import Factory

T = TypeVar("T")
Work = tuple[Environment, Callable[[], T]]


class Workers(Protocol):
    """Makes environments and acts in many of them. Answers come in the order of what was asked, whatever ends first."""

    @property
    def replaced(self) -> int:
        """Workers that had to be replaced so far."""

    def environments(self, make: Factory, count: int) -> list[Environment]:
        """``count`` new environments, each for one episode."""

    def each(self, work: Sequence[Work[T]]) -> list[T]:
        """The results of functions, each of which acts in its environment and in no other."""

    def close(self) -> None:
        """End what runs. Nothing may be asked afterwards."""


class InTurn:
    """No workers: environments act in this thread, one after another, for as long as they take."""

    replaced = 0

    def environments(self, make: Factory, count: int) -> list[Environment]:
        """``count`` new environments."""
        return [made(make) for _ in range(count)]

    def each(self, work: Sequence[Work[T]]) -> list[T]:
        """The results, made in order."""
        return [act() for _, act in work]

    def close(self) -> None:
        """Nothing to do."""
