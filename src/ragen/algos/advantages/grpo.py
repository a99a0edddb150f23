"""Group-relative advantages (GRPO)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.credit import Credit
from ragen.algos.groups import numbered, relative
from ragen.algos.trajectories import Episodes


@register_advantage("grpo")
def grpo(
    rewards: Tensor, mask: Tensor, trajectory: Tensor, group: Tensor, *, normalize_std: bool = True, eps: float = 1e-6
) -> Credit:
    """A_{i,j} = (R(τ_i) − mean_group R) / (std_group R + eps), the same for every sampled token of τ_i.

    R(τ_i) is the sum of the rewards of all turns and segments of the trajectory; ``normalize_std=False`` leaves the division
    out (as ``dr_grpo``). The standard deviation has Bessel's correction. A group is flat iff max R = min R (never by a
    threshold): its advantages are exactly 0; so are those of a group of one. Groups may have any size and order. A
    trajectory without a sampled token takes no part in its group's statistics. Computed in float64 on the CPU.

    Shapes: ``rewards``, ``mask`` (R, T); ``trajectory``, ``group`` (R,).
    Source: DeepSeekMath (arXiv 2402.03300, eq. 3 and §4.1.2); RAGEN (arXiv 2504.20073), which sums over turns.
    """
    episodes = Episodes.of(rewards, mask, trajectory)
    advantages = episode_relative(episodes, group, normalize_std=normalize_std, eps=eps)
    return episodes.credit(advantages, rewards.device)


def episode_relative(episodes: Episodes, group: Tensor, *, normalize_std: bool, eps: float) -> Tensor:
    """The advantages of whole trajectories (M,) float64; ``group`` (R,) of the rows."""
    counted = episodes.counted
    advantages = torch.zeros_like(episodes.returns)
    number = numbered(episodes.of_rows(group)[counted])
    advantages[counted] = relative(episodes.returns[counted], number, normalize_std=normalize_std, eps=eps)
    return advantages
