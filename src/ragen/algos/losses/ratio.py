"""What the losses with an importance ratio share."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms
from ragen.algos.reduce import unit_sums, weighted_mean, weighted_sum

MAX_LOG_RATIO = 20.0


def log_ratio(logprobs: Tensor, old_logprobs: Tensor, weights: Tensor) -> Tensor:
    """log ρ = logprobs − old_logprobs, held in [−20, 20], so that no infinite ratio can turn an advantage of 0 into NaN.

    0 without a gradient where the weight is 0; no gradient to ``old_logprobs``.
    """
    used = weights != 0
    difference = torch.where(used, logprobs, 0) - torch.where(used, old_logprobs, 0).detach()
    return difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def unit_ratio(log_ratios: Tensor, weights: Tensor, units: Tensor) -> Tensor:
    """s_u = exp(1/|u| Σ_{t∈u} log ρ_t) at every token t of the unit u, with the gradient s_u ∇log ρ_t of that token alone.

    |u| counts the tokens of the unit with a weight. The value at t is s_u; the factor sg[s_u] · exp(log ρ_t − sg[log ρ_t])
    gives each token its own part of the gradient (GSPO-token, arXiv 2507.18071, eq. 13), so the advantages of a unit may
    differ. Where they are equal, as are the weights, the sum over the unit is the gradient through the mean itself.
    """
    used = weights != 0
    fixed = log_ratios.detach()
    means = unit_sums(fixed, used, units) / unit_sums(torch.ones_like(fixed), used, units).clamp(min=1)
    at_tokens = torch.zeros_like(fixed)
    at_tokens[used] = means[units[used]]
    return at_tokens.exp() * (log_ratios - fixed).exp()


def clipped_surrogate(
    ratio: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> LossTerms:
    """loss = −Σ w · min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A); where A < 0 at least ``dual_clip`` · A inside the sum.

    Means, weighted as the loss: ``clip_low``, ``clip_high``, ``clip_dual``: tokens whose gradient that bound removed.
    """
    advantage = torch.where(weights != 0, advantages, 0)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - clip_low, 1 + clip_high) * advantage)
    means = {
        "clip_low": weighted_mean((ratio < 1 - clip_low) & (advantage < 0), weights),
        "clip_high": weighted_mean((ratio > 1 + clip_high) & (advantage > 0), weights),
    }
    if dual_clip is not None:
        surrogate = torch.where(advantage < 0, torch.maximum(surrogate, dual_clip * advantage), surrogate)
        means["clip_dual"] = weighted_mean((ratio > dual_clip) & (advantage < 0), weights)
    return LossTerms(-weighted_sum(surrogate, weights), means)
