"""Statistics within groups, float64. A group is flat iff its largest value equals its smallest (never by a threshold).

Shapes: n values, each with its group's number (n,), 0 … P−1; groups may have any size and order.
"""

import torch
from torch import Tensor


def numbered(*keys: Tensor) -> Tensor:
    """Number the different combinations of ``keys``, each (n,) int64, from 0 on: (n,) int64."""
    number = torch.zeros_like(keys[0])
    for key in keys:  # each on its own: torch.unique over columns takes many times as long
        distinct, own = torch.unique(key, return_inverse=True)
        number = torch.unique(number * len(distinct) + own, return_inverse=True)[1]
    return number


def sums(values: Tensor, number: Tensor) -> Tensor:
    """(P,): the sum of each group's values."""
    return torch.zeros(_count(number), dtype=values.dtype).index_add_(0, number, values)


def sizes(number: Tensor) -> Tensor:
    """(P,) int64: the members of each group."""
    return torch.bincount(number, minlength=_count(number))


def flat(values: Tensor, number: Tensor) -> Tensor:
    """(n,) bool: whether the value's group is flat; so is a group of one."""
    zeros = torch.zeros(_count(number), dtype=values.dtype)
    highest = zeros.scatter_reduce(0, number, values, "amax", include_self=False)
    lowest = zeros.scatter_reduce(0, number, values, "amin", include_self=False)
    return (highest == lowest)[number]


def centred(values: Tensor, number: Tensor) -> Tensor:
    """x_i − mean_group x (n,); exactly 0 in a flat group."""
    mean = sums(values, number) / sizes(number).clamp(min=1)
    return torch.where(flat(values, number), 0.0, values - mean[number])


def standardized(values: Tensor, number: Tensor, eps: float) -> Tensor:
    """(x_i − mean_group x) / (std_group x + eps) (n,), std with Bessel's correction; exactly 0 in a flat group."""
    off = centred(values, number)
    variance = sums(off.square(), number) / (sizes(number) - 1).clamp(min=1)
    return torch.where(flat(values, number), 0.0, off / (variance.sqrt()[number] + eps))


def relative(values: Tensor, number: Tensor, *, normalize_std: bool, eps: float) -> Tensor:
    """``standardized``, or ``centred`` where ``normalize_std`` is False."""
    return standardized(values, number, eps) if normalize_std else centred(values, number)


def _count(number: Tensor) -> int:
    return int(number.max()) + 1 if number.numel() else 0
