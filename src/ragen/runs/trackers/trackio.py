"""Trackio (extra ``trackio``): its own local store, so that ``trackio show`` finds all runs, or what its variables name."""

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from typing import Any

from ragen.runs.trackers.base import TrackedRun, Tracker, not_installed, trackers

PROJECT = "ragen"


@trackers.register("trackio")
class Trackio(Tracker):
    """A run of the local project ``ragen``; its name ends in ``run.id``, for trackio finds a run again by name alone."""

    @classmethod
    def require(cls) -> None:
        """Trackio must be installed."""
        _trackio()

    def open(self, run: TrackedRun) -> None:
        """Begin the trackio run, or go on with it."""
        with redirect_stdout(io.StringIO()):  # it prints how to look at the project
            self._run = _trackio().init(
                project=PROJECT,
                name=f"{run.name}-{run.id}",
                config=dict(run.settings),
                resume="allow" if run.resumed else "never",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue the numbers; a thread of trackio's own writes them."""
        self._run.log(dict(metrics), step=step)

    def close(self) -> None:
        """Wait until they are written."""
        with redirect_stdout(io.StringIO()):
            _trackio().finish()


def _trackio() -> Any:
    try:
        import trackio
    except ImportError:
        raise not_installed("trackio", "trackio") from None
    return trackio
