"""Direct preference optimisation, on whole trajectories and on turns with the same history."""

import torch
from torch import Tensor
from torch.nn import functional

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.reduce import Mean, unit_sums


@register_loss("dpo")
def dpo(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    weights: Tensor,
    trajectories: Tensor,
    trajectory_pairs: Tensor,
    *,
    beta: float,
) -> LossTerms:
    """loss = −1/Q Σ_(w,l) log σ( β h_w − β h_l ),  h = Σ_{t∈τ} (log π − log π_ref) over the sampled tokens of a trajectory.

    The Q pairs (better, worse) in ``trajectory_pairs`` (Q, 2) come from the collected groups: both members began in one
    state. Token arrays (R, T) or (N,); tokens of weight 0 are never looked at, other weights count as 1. Without a pair
    the loss is 0.
    Means: ``preference_accuracy``: share of pairs with h_w > h_l; ``preference_margin``: mean of β h_w − β h_l.
    Deviation: the environment's own randomness is a part of what made a member better.
    Source: DPO (arXiv 2305.18290, eq. 7); on trajectories, where observations carry no loss, as in ETO (arXiv 2403.02502).
    """
    return _pair_loss(logprobs, reference_logprobs, weights, trajectories, trajectory_pairs, beta)


@register_loss("step_dpo")
def step_dpo(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    weights: Tensor,
    turns: Tensor,
    turn_pairs: Tensor,
    *,
    beta: float,
) -> LossTerms:
    """loss = −1/Q Σ_(w,l) log σ( β h_w − β h_l ),  h = Σ_{t∈turn} (log π − log π_ref) over the sampled tokens of one turn.

    The two turns of a pair in ``turn_pairs`` (Q, 2) answer exactly the same tokens. For the rest see ``dpo``.
    Deviation: the source has an annotator mark the first wrong step; here the better turn is the one after which more was
    earned (return from that turn on), which the later turns share in.
    Source: Step-DPO (arXiv 2406.18629, eq. 2).
    """
    return _pair_loss(logprobs, reference_logprobs, weights, turns, turn_pairs, beta)


def implicit_rewards(logprobs: Tensor, reference_logprobs: Tensor, weights: Tensor, units: Tensor) -> Tensor:
    """h = Σ (log π − log π_ref) over the tokens of each unit with a weight: (U,); a unit without one has 0."""
    used = weights != 0
    return unit_sums(torch.where(used, logprobs, 0) - torch.where(used, reference_logprobs, 0).detach(), used, units)


def _pair_loss(new: Tensor, reference: Tensor, weights: Tensor, units: Tensor, pairs: Tensor, beta: float) -> LossTerms:
    reward = implicit_rewards(new, reference, weights, units)
    margin = beta * (reward[pairs[:, 0]] - reward[pairs[:, 1]])
    fixed = margin.detach()
    count = fixed.new_tensor(len(pairs))
    means = {
        "preference_accuracy": Mean((fixed > 0).sum(), count),
        "preference_margin": Mean(fixed.sum(), count),
    }
    return LossTerms(-functional.logsigmoid(margin).sum() / max(1, len(pairs)), means)
