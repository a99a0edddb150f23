"""Group-relative advantages without the division by the standard deviation (Dr. GRPO)."""

from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.advantages.grpo import grpo
from ragen.algos.credit import Credit


@register_advantage("dr_grpo")
def dr_grpo(rewards: Tensor, mask: Tensor, trajectory: Tensor, group: Tensor) -> Credit:
    """A_{i,j} = R(τ_i) − mean_group R, the same for every sampled token of τ_i.

    ``grpo`` without its division, which gives groups of little spread (too easy, too hard) the same weight as others. The
    source's other half, the sum over tokens by a constant instead of |τ|, is ``loss.aggregation: trajectory-sum``.

    Shapes: ``rewards``, ``mask`` (R, T); ``trajectory``, ``group`` (R,).
    Source: "Understanding R1-Zero-Like Training" (arXiv 2503.20783, §3.2).
    """
    return grpo(rewards, mask, trajectory, group, normalize_std=False)
