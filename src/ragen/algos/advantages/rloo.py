"""The mean of the other members as baseline (RLOO)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import KL_IN_REWARD, register_advantage
from ragen.algos.credit import Credit
from ragen.algos.groups import centred, numbered, sizes
from ragen.algos.trajectories import Episodes


@register_advantage("rloo", KL_IN_REWARD)
def rloo(rewards: Tensor, mask: Tensor, trajectory: Tensor, group: Tensor) -> Credit:
    """A_{i,j} = R(τ_i) − 1/(n−1) Σ_{k≠i} R(τ_k) = n/(n−1) · (R(τ_i) − mean_group R), for every sampled token of τ_i.

    n counts the members of the group with a sampled token. The baseline does not contain R(τ_i), so the policy gradient is
    unbiased. A flat group, and one of a single member, gives exactly 0. Computed in float64 on the CPU.

    Shapes: ``rewards``, ``mask`` (R, T); ``trajectory``, ``group`` (R,).
    Source: Kool et al. 2019; Ahmadian et al., "Back to Basics" (arXiv 2402.14740), whose R contains the KL term.
    """
    episodes = Episodes.of(rewards, mask, trajectory)
    counted = episodes.counted
    number = numbered(episodes.of_rows(group)[counted])
    size = sizes(number)[number]
    advantages = torch.zeros_like(episodes.returns)
    advantages[counted] = centred(episodes.returns[counted], number) * size / (size - 1).clamp(min=1)
    return episodes.credit(advantages, rewards.device)
