"""CISPO: the importance ratio is clipped, not the token's gradient."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.losses.ratio import log_ratio
from ragen.algos.reduce import weighted_mean, weighted_sum


@register_loss("cispo")
def cispo(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_high: float,
) -> LossTerms:
    """loss = −Σ w · sg[min(ρ, 1 + clip_high)] · A · log π,  ρ = exp(logprobs − old_logprobs), sg = without gradient.

    Every token keeps a gradient, also where PPO's clip would remove it; a large ratio only stops growing. As in the source
    there is no lower bound. All tensors (R, T) or (N,); tokens of weight 0 are never looked at; log ρ is held in [−20, 20].
    Means: ``clip_high``: share of tokens whose ratio is capped.
    Source: MiniMax-M1 (arXiv 2506.13585, eq. 4 and 5); they tune the bound and give no number for it.
    """
    used = weights != 0
    ratio = log_ratio(logprobs, old_logprobs, weights).detach().exp()
    weighted = ratio.clamp(max=1 + clip_high) * torch.where(used, advantages, 0).detach()
    loss = -weighted_sum(weighted * torch.where(used, logprobs, 0), weights)
    return LossTerms(loss, {"clip_high": weighted_mean(ratio > 1 + clip_high, weights)})
