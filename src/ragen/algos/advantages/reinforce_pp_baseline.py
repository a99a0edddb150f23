"""The group's mean as baseline, standardised over the whole batch (REINFORCE++-baseline)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.credit import Credit
from ragen.algos.groups import centred, flat, numbered
from ragen.algos.trajectories import Episodes


@register_advantage("reinforce_pp_baseline")
def reinforce_pp_baseline(rewards: Tensor, mask: Tensor, trajectory: Tensor, group: Tensor) -> Credit:
    """A_{i,j} = (C_i − mean C) / (std C + 1e-8),  C_i = R(τ_i) − mean_group R,  mean and std over all sampled tokens.

    One standard deviation for the batch instead of one a group: a group of little spread is not blown up. Deviation: tokens
    of flat groups (and of groups of one) take no part in mean and std and stay exactly 0; in the source they get −mean C /
    std C.

    Shapes: ``rewards``, ``mask`` (R, T); ``trajectory``, ``group`` (R,).
    Source: REINFORCE++ (arXiv 2501.03262), the variant with a group baseline, whose KL term is in the loss.
    """
    episodes = Episodes.of(rewards, mask, trajectory)
    counted = episodes.counted
    number = numbered(episodes.of_rows(group)[counted])
    returns, tokens = episodes.returns[counted], episodes.lengths()[counted]
    off, live = centred(returns, number), ~flat(returns, number)
    weight = torch.where(live, tokens, 0)
    mean = (weight * off).sum() / weight.sum().clamp(min=1)
    variance = (weight * (off - mean).square()).sum() / (weight.sum() - 1).clamp(min=1)
    advantages = torch.zeros_like(episodes.returns)
    advantages[counted] = torch.where(live, (off - mean) / (variance.sqrt() + 1e-8), 0.0)
    return episodes.credit(advantages, rewards.device)
