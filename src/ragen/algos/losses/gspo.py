"""GSPO: one clipped ratio for a whole sequence."""

from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.losses.ratio import clipped_surrogate, log_ratio, unit_ratio


@register_loss("gspo")
def gspo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    units: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> LossTerms:
    """loss = −Σ w · min(s A, clip(s, 1 − clip_low, 1 + clip_high) A),  s = (π(u) / π_old(u))^{1/|u|} of the token's unit u.

    log s is the mean of log ρ over the unit (``loss.ratio_unit``: the trajectory or a turn). Written in the token form
    of the source (eq. 13): the advantages of a unit may differ (GAE, turn-level credit); where they are equal it is
    GSPO (eq. 5). The bounds are far below PPO's (by default the source's), because s averages over many tokens.
    All tensors (R, T) or (N,), ``units`` int64; tokens of weight 0 are never looked at; log ρ is held in [−20, 20].
    Means: ``clip_low``, ``clip_high``: share of tokens, not of units, whose gradient the bound removed.
    Source: Group Sequence Policy Optimization (arXiv 2507.18071, eq. 5–7 and 13).
    """
    ratio = unit_ratio(log_ratio(logprobs, old_logprobs, weights), weights, units)
    return clipped_surrogate(ratio, advantages, weights, clip_low=clip_low, clip_high=clip_high)
