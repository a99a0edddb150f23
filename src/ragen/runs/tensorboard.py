"""Metrics for TensorBoard (extra ``tensorboard``); ``metrics.jsonl`` is written in any case."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ragen.errors import ConfigError
from ragen.extras import install_command


def require_tensorboard() -> Any:
    """The event writer's class, or a ConfigError that says how to install it."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError(
            f"run.tensorboard is true, but TensorBoard is not installed: {install_command('tensorboard')}, "
            "or set run.tensorboard to false (metrics.jsonl holds the same numbers)"
        ) from None
    return SummaryWriter


class TensorBoard:
    """Writes scalars below ``folder``; points at ``first_step`` and later that an earlier session wrote are dropped."""

    def __init__(self, folder: Path, first_step: int) -> None:
        self._writer = require_tensorboard()(str(folder), purge_step=first_step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add one point to each curve; NaN is left out."""
        for name, value in metrics.items():
            if isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, float(value), step)
        self._writer.flush()

    def close(self) -> None:
        """Flush and close the event file."""
        self._writer.close()
