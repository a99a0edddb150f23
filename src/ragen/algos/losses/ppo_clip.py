"""The clipped surrogate of PPO with separate bounds below and above."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.reduce import weighted_sum

_MAX_LOG_RATIO = 20.0


@register_loss("ppo_clip")
def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
) -> LossTerms:
    """loss = −Σ w · min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A),  ρ = exp(logprobs − old_logprobs).

    All tensors (R, T) or (N,); ``weights`` come from ``token_weights``. Tokens of weight 0 are never looked at: what stands
    there may be NaN and changes neither loss nor gradient. Deviation: log ρ is held in [−20, 20], so that no infinite
    ratio can turn an advantage of 0 into NaN.
    Source: PPO (arXiv 1707.06347, eq. 7); clip-higher from DAPO (arXiv 2503.14476, eq. 10).
    """
    used = weights != 0
    new, old = torch.where(used, logprobs, 0), torch.where(used, old_logprobs, 0)
    advantage = torch.where(used, advantages, 0)
    ratio = (new - old.detach()).clamp(-_MAX_LOG_RATIO, _MAX_LOG_RATIO).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    with torch.no_grad():
        low = ((ratio < 1 - clip_low) & (advantage < 0)) * weights
        high = ((ratio > 1 + clip_high) & (advantage > 0)) * weights
    return LossTerms(-weighted_sum(surrogate, weights), low.sum(), high.sum())
