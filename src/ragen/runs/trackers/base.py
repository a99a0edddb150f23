"""What a tracker is: something outside that is told a run's settings, metrics and evaluations."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ragen.errors import ConfigError
from ragen.extras import install_command
from ragen.registry import Registry


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """What a tracker is told when it opens.

    ``name`` is for people; ``id`` (8 hexadecimal digits) is the same whenever this run goes on. ``resumed``: the tracker
    knows the run already. Steps before ``first_step`` were told before. ``folder`` is the tracker's own in the run directory
    (to be made if it is used). ``settings`` are the run's, by dotted name.
    """

    name: str
    id: str
    resumed: bool
    first_step: int
    folder: Path
    settings: Mapping[str, Any]


class Tracker(ABC):
    """One destination of metrics. Whatever a method raises is warned about once, and the tracker is told nothing more.

    ``forgets``: opening with ``first_step`` removes the points from that step on, so they may be told again.
    """

    forgets: ClassVar[bool] = False

    @classmethod
    def require(cls) -> None:
        """Raise ConfigError, with what to do, where it cannot work: asked before a model is loaded; without a network."""
        return  # nothing to require

    @abstractmethod
    def open(self, run: TrackedRun) -> None:
        """Begin, or go on with what ``run.id`` names."""

    @abstractmethod
    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add finite numbers of ``step``; steps never fall, and one step may come in several parts."""

    @abstractmethod
    def close(self) -> None:
        """Hand over what is held back, and end."""


trackers: Registry[type[Tracker]] = Registry(
    "tracker",
    own="plugins names its file, or an installed package its class as an entry point of the group ragen.trackers",
    fits=lambda part: isinstance(part, type) and issubclass(part, Tracker),
)


def not_installed(name: str, library: str) -> ConfigError:
    """The error for a tracker whose library (the extra of the same name) is missing."""
    return ConfigError(
        f"run.trackers holds '{name}', but {library} is not installed: {install_command(name)}, or take '{name}' out of "
        "run.trackers (metrics.jsonl holds the same numbers)"
    )
