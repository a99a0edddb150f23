"""Group-relative advantages (GRPO)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.credit import Credit
from ragen.algos.reduce import trajectory_layout


@register_advantage("grpo")
def grpo(
    rewards: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    trajectory: Tensor,
    group: Tensor,
    *,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> Credit:
    """A_{i,j} = (R(τ_i) − mean_group R) / (std_group R + eps), the same for every sampled token of τ_i.

    R(τ_i) is the sum of the rewards of all turns and segments of the trajectory; ``normalize_std=False`` leaves the division
    out (Dr. GRPO). The standard deviation has Bessel's correction. A group is flat iff max R = min R (never by a threshold):
    its advantages are exactly 0; so are those of a group of one. Groups may have any size and order. A trajectory
    without a sampled token takes no part in its group's statistics. Computed in float64 on the CPU.

    Shapes: ``rewards``, ``mask``, ``turn_ids`` (R, T); ``trajectory``, ``group`` (R,).
    Source: DeepSeekMath (arXiv 2402.03300, eq. 3 and §4.1.2); RAGEN (arXiv 2504.20073), which sums over turns.
    """
    device, cpu_mask = rewards.device, mask.cpu()
    layout = trajectory_layout(cpu_mask, turn_ids.cpu(), trajectory.cpu())
    returns = layout.gather(rewards.cpu().to(torch.float64)).sum(dim=1)
    members = torch.zeros(len(returns), dtype=torch.int64)
    members[layout.index] = torch.unique(group.cpu(), return_inverse=True)[1]
    advantages = _standardize(returns, members, layout.lengths > 0, normalize_std=normalize_std, eps=eps)
    laid_out = layout.scatter(advantages[:, None].expand(layout.valid.shape), cpu_mask)
    return Credit(laid_out.to(device=device, dtype=torch.float32))


def _standardize(returns: Tensor, group: Tensor, counted: Tensor, *, normalize_std: bool, eps: float) -> Tensor:
    """Standardise ``returns`` (M,) within groups numbered 0 … P−1 in ``group`` (M,); 0 where not ``counted`` or flat."""
    result = torch.zeros_like(returns)
    if not bool(counted.any()):
        return result
    inside, index = returns[counted], group[counted]
    zeros = torch.zeros(int(group.max()) + 1, dtype=returns.dtype)
    size = zeros.index_add(0, index, torch.ones_like(inside))
    mean = zeros.index_add(0, index, inside) / size.clamp(min=1)
    centred = inside - mean[index]
    variance = zeros.index_add(0, index, centred.square()) / (size - 1).clamp(min=1)
    highest = zeros.scatter_reduce(0, index, inside, "amax", include_self=False)
    lowest = zeros.scatter_reduce(0, index, inside, "amin", include_self=False)
    scaled = centred / (variance.sqrt()[index] + eps) if normalize_std else centred
    result[counted] = torch.where((highest == lowest)[index], 0.0, scaled)
    return result
