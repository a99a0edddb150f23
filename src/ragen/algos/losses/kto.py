"""KTO: good and bad trajectories without pairs."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.losses.dpo import implicit_rewards
from ragen.algos.reduce import Mean


@register_loss("kto")
def kto(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    weights: Tensor,
    trajectories: Tensor,
    labels: Tensor,
    *,
    beta: float,
    good_weight: float = 1.0,
    bad_weight: float = 1.0,
) -> LossTerms:
    """loss = 1/n Σ_i λ_i (1 − σ( ±β (h_i − z) )),  + and λ = ``good_weight`` where ``labels`` (M,) is 1, − and
    ``bad_weight`` where it is −1;  h = Σ_{t∈τ} (log π − log π_ref);  z = max(0, mean h), without gradient.

    n = labelled trajectories (label ≠ 0) that have a token here. Token arrays (R, T) or (N,); tokens of weight 0 are never
    looked at, other weights count as 1.
    Means: ``preference_accuracy``: share with the sign of h − z that the label asks for; ``preference_margin``: mean
    β|h − z| with that sign.
    Deviation: the source estimates z = KL(π ‖ π_ref) on mismatched prompts and replies; the trajectories here were sampled
    from π itself, so the mean of their h is an unbiased estimate before the first step, and costs nothing.
    Source: KTO (arXiv 2402.01306, eq. 8).
    """
    reward = implicit_rewards(logprobs, reference_logprobs, weights, trajectories)
    seen = torch.unique(trajectories[weights != 0])
    seen = seen[labels[seen] != 0]
    sign, inside = labels[seen].to(reward.dtype), reward[seen]
    count = inside.new_tensor(len(seen))
    anchor = inside.detach().mean().clamp(min=0) if len(seen) else 0.0
    margin = beta * sign * (inside - anchor)
    scale = torch.where(sign > 0, good_weight, bad_weight).to(reward.dtype)
    means = {
        "preference_accuracy": Mean((margin.detach() > 0).sum(), count),
        "preference_margin": Mean(margin.detach().sum(), count),
    }
    return LossTerms((scale * torch.sigmoid(-margin)).sum() / max(1, len(seen)), means)
