"""What the loops report while they run; the console is one listener, a notebook or a test may be another."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ragen.config.schema import Config


@runtime_checkable
class Listener(Protocol):
    """Told of progress by training, evaluation and warm-up. A listener never changes what they do."""

    def on_start(self, config: Config, run_dir: Path | None) -> None:
        """A run begins (or goes on)."""

    def on_phase(self, name: str, total: int) -> None:
        """A stretch of work begins: "train", "warm-up", "evaluate …"; ``total`` units, 0 = unknown."""

    def on_progress(self, done: int) -> None:
        """``done`` more units of the current phase are finished."""

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A training step is finished; it counts as one unit of the phase "train"."""

    def on_eval(self, name: str, report: Any) -> None:
        """An evaluation is finished (``ragen.metrics.evaluation.EvalReport``)."""

    def on_message(self, text: str) -> None:
        """Something worth a line."""

    def on_end(self, result: Any) -> None:
        """The run is over (``ragen.loops.result.TrainResult``)."""


class Silent:
    """A listener that says nothing; also a base for listeners that care about some events only."""

    def on_start(self, config: Config, run_dir: Path | None) -> None:
        """Say nothing."""

    def on_phase(self, name: str, total: int) -> None:
        """Say nothing."""

    def on_progress(self, done: int) -> None:
        """Say nothing."""

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Say nothing."""

    def on_eval(self, name: str, report: Any) -> None:
        """Say nothing."""

    def on_message(self, text: str) -> None:
        """Say nothing."""

    def on_end(self, result: Any) -> None:
        """Say nothing."""
