"""GMPO: the geometric mean of a sequence's clipped token ratios."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.losses.ratio import log_ratio, unit_ratio
from ragen.algos.reduce import weighted_mean, weighted_sum


@register_loss("gmpo")
def gmpo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    units: Tensor,
    *,
    clip_low: float = 0.4,
    clip_high: float = 0.4,
) -> LossTerms:
    """loss = −Σ w · A · g,  g = (Π_{t∈u} ρ'_t)^{1/|u|} of the token's unit u,
    ρ'_t = min(ρ_t, e^{clip_high}) where A > 0, max(ρ_t, e^{−clip_low}) where A < 0.

    The bounds are of log ρ, by default the source's. A clipped token keeps its place in the mean and
    loses its gradient. Deviation: the advantages of a unit may differ; each token is clipped by its own and has its own
    part of the gradient (as in GSPO-token). Where they are equal it is the source's rule. All tensors (R, T) or (N,),
    ``units`` int64 (``loss.ratio_unit``); tokens of weight 0 are never looked at.
    Means: ``clip_low``, ``clip_high``: share of tokens whose gradient the bound removed.
    Source: Geometric-Mean Policy Optimization (arXiv 2507.20673, eq. 4).
    """
    advantage = torch.where(weights != 0, advantages, 0).detach()
    ratio = log_ratio(logprobs, old_logprobs, weights)
    high, low = (ratio > clip_high) & (advantage > 0), (ratio < -clip_low) & (advantage < 0)
    clipped = torch.where(high, clip_high, torch.where(low, -clip_low, ratio))
    loss = -weighted_sum(advantage * unit_ratio(clipped, weights, units), weights)
    return LossTerms(loss, {"clip_low": weighted_mean(low, weights), "clip_high": weighted_mean(high, weights)})
