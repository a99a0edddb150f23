"""What an advantage estimator returns."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Credit:
    """``advantages`` (R, T) float32, exactly 0 off the mask; ``value_targets`` (R, T) float32 or None without a critic."""

    advantages: Tensor
    value_targets: Tensor | None = None
