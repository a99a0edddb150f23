"""What an update reports."""

from dataclasses import dataclass, fields
from math import isfinite


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Numbers of one update; `ragen.metrics.METRICS` defines each under ``update/<name>``. None = does not apply.

    Means over optimiser steps (None when none was taken), except ``mismatch_*``, ``replay_*`` and ``explained_variance``
    (taken before the update) and ``learning_rate`` (of the last step). ``non_finite`` counts steps left out for non-finite
    numbers.
    """

    loss: float | None
    policy_loss: float | None
    clip_low: float | None
    clip_high: float | None
    entropy: float | None
    grad_norm: float | None
    mismatch_mean: float
    mismatch_max: float
    learning_rate: float
    optimizer_steps: int
    non_finite: int
    value_loss: float | None = None
    explained_variance: float | None = None
    kl: float | None = None
    replay_ratio_mean: float | None = None
    replay_ratio_max: float | None = None
    replay_ess: float | None = None

    @property
    def skipped(self) -> int:
        """1 where no optimiser step was taken, else 0."""
        return int(self.optimizer_steps == 0)

    def metrics(self) -> dict[str, float]:
        """The numbers under their logged names, without those that do not apply or are not finite."""
        values = {field.name: getattr(self, field.name) for field in fields(self)} | {"skipped": self.skipped}
        return {f"update/{name}": float(value) for name, value in values.items() if value is not None and isfinite(value)}
