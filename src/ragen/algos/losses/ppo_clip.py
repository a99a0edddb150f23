"""The clipped surrogate of PPO with separate bounds below and above, and a second one for bad tokens."""

from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.losses.ratio import clipped_surrogate, log_ratio


@register_loss("ppo_clip")
def ppo_clip(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    weights: Tensor,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> LossTerms:
    """loss = −Σ w · min(ρ A, clip(ρ, 1 − clip_low, 1 + clip_high) A),  ρ = exp(logprobs − old_logprobs).

    With ``dual_clip`` = c > 1, where A < 0: max(that minimum, c A), so that a token of large ρ cannot pull without bound.
    All tensors (R, T) or (N,); ``weights`` come from ``token_weights``. Tokens of weight 0 are never looked at: what stands
    there may be NaN and changes neither loss nor gradient. Deviation: log ρ is held in [−20, 20].
    Means: ``clip_low``, ``clip_high``, with dual clip ``clip_dual``: share of tokens whose gradient that bound removed.
    Source: PPO (arXiv 1707.06347, eq. 7); clip-higher from DAPO (arXiv 2503.14476, eq. 10); dual clip from Ye et al.
    (arXiv 1912.09729, §"Dual-clip PPO").
    """
    ratio = log_ratio(logprobs, old_logprobs, weights).exp()
    return clipped_surrogate(ratio, advantages, weights, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)
