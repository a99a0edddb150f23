"""What an update reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite


@dataclass(frozen=True, slots=True)
class UpdateStats:
    """Numbers of one update; `ragen.metrics.METRICS` defines each under ``update/<name>``. None = does not apply.

    Means over optimiser steps (None when none was taken), except ``mismatch_*``, ``replay_*`` and ``explained_variance``
    (taken before the update) and ``learning_rate`` (of the last step). ``non_finite`` counts steps left out for non-finite
    numbers. ``rule`` are the means that the policy loss itself reports, by name.
    """

    loss: float | None
    policy_loss: float | None
    entropy: float | None
    grad_norm: float | None
    mismatch_mean: float | None
    mismatch_max: float | None
    learning_rate: float
    optimizer_steps: int
    non_finite: int
    value_loss: float | None = None
    explained_variance: float | None = None
    kl: float | None = None
    replay_ratio_mean: float | None = None
    replay_ratio_max: float | None = None
    replay_ess: float | None = None
    sft_loss: float | None = None
    sft_coef: float | None = None
    sft_rows: int | None = None
    rule: Mapping[str, float] = field(default_factory=dict)

    @property
    def skipped(self) -> int:
        """1 where no optimiser step was taken, else 0."""
        return int(self.optimizer_steps == 0)

    def metrics(self) -> dict[str, float]:
        """The numbers under their logged names, without those that do not apply or are not finite."""
        values = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "rule"}
        values |= {"skipped": self.skipped, **self.rule}
        return {f"update/{name}": float(value) for name, value in values.items() if value is not None and isfinite(value)}
