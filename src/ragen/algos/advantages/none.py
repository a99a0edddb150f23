"""No credit: for losses that compare or imitate whole trajectories."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.credit import Credit


@register_advantage("none")
def none(mask: Tensor) -> Credit:
    """A = 0 everywhere: (R, T). The losses of preference and imitation take no advantages."""
    return Credit(torch.zeros(mask.shape, dtype=torch.float32, device=mask.device))
