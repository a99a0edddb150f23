"""The critic's loss and how much of the returns it explains."""

import torch
from torch import Tensor

from ragen.algos.reduce import masked_mean, weighted_sum


def value_loss(values: Tensor, old_values: Tensor, targets: Tensor, weights: Tensor, *, clip: float | None = None) -> Tensor:
    """½ Σ w · max((V − y)², (V_clip − y)²),  V_clip = V_old + clip(V − V_old, −clip, clip)  (scalar).

    All tensors (R, T) or (N,): ``values`` V, ``old_values`` V_old (before the update), ``targets`` y, ``weights``.
    ``clip`` None gives ½ Σ w · (V − y)². Tokens of weight 0 are never looked at.
    Source: the value clipping of OpenAI baselines' PPO2.
    """
    used = weights != 0
    value, old = torch.where(used, values, 0), torch.where(used, old_values, 0).detach()
    target = torch.where(used, targets, 0).detach()
    error = (value - target).square()
    if clip is not None:
        error = torch.maximum(error, (old + (value - old).clamp(-clip, clip) - target).square())
    return 0.5 * weighted_sum(error, weights)


def explained_variance(values: Tensor, targets: Tensor, mask: Tensor) -> Tensor:
    """1 − Var(y − V) / Var(y) over the mask (scalar): 1 = perfect, 0 = no better than a constant; 0 where y is constant."""
    target = torch.where(mask, targets, 0)
    residual = target - torch.where(mask, values, 0)
    variance = masked_mean((target - masked_mean(target, mask)).square(), mask)
    unexplained = masked_mean((residual - masked_mean(residual, mask)).square(), mask)
    inside = target[mask]
    if inside.numel() == 0 or bool(inside.max() == inside.min()):
        return torch.zeros_like(variance)
    return 1 - unexplained / variance
