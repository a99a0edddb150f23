"""TensorBoard events in the run directory (extra ``tensorboard``)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from ragen.runs.trackers.base import TrackedRun, Tracker, not_installed, trackers


@trackers.register("tensorboard")
class TensorBoard(Tracker):
    """Scalars below ``tensorboard/`` of the run."""

    forgets: ClassVar[bool] = True

    @classmethod
    def require(cls) -> None:
        """TensorBoard must be installed."""
        _writer()

    def open(self, run: TrackedRun) -> None:
        """Write to a new file of events; its readers drop what older files hold from ``first_step`` on."""
        self._events = _writer()(str(run.folder), purge_step=run.first_step)
        if not run.resumed:
            self._events.add_text("settings", "".join(f"    {key}: {value}\n" for key, value in run.settings.items()))

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to each curve."""
        for name, value in metrics.items():
            self._events.add_scalar(name, value, step)
        self._events.flush()

    def close(self) -> None:
        """Flush and close the file of events."""
        self._events.close()


def _writer() -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise not_installed("tensorboard", "TensorBoard") from None
    return SummaryWriter
