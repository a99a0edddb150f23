"""Generalised advantage estimation over the sampled tokens of whole trajectories."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.credit import Credit
from ragen.algos.reduce import trajectory_layout
from ragen.algos.reduce import whiten as whiten_tokens


@register_advantage("gae")
def gae(
    rewards: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    trajectory: Tensor,
    values: Tensor,
    truncated: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    whiten: bool = False,
    bootstrap_truncated: bool = False,
) -> Credit:
    """A_j = Σ_l (γλ)^l δ_{j+l},  δ_j = r_j + γ V_{j+1} − V_j,  over sampled tokens only.

    j counts the sampled tokens of one trajectory in turn order, across turns and segments: observation tokens are no steps,
    so they neither decay a reward nor lend their values. After the last token V = 0; with ``bootstrap_truncated`` it is the
    last sampled token's own value where (and only where) the trajectory was truncated, the closest estimate there is.
    ``value_targets`` = A + V, taken before ``whiten`` standardises A over the sampled tokens of the batch.
    Both results are exactly 0 off the mask. Computed in float64 on the CPU.

    Shapes: ``rewards``, ``mask``, ``turn_ids``, ``values`` (R, T); ``trajectory``, ``truncated`` (R,).
    Source: Schulman et al. (arXiv 1506.02438, eq. 16); over sampled tokens as in RAGEN (arXiv 2504.20073).
    """
    device, cpu_mask = rewards.device, mask.cpu()
    layout = trajectory_layout(cpu_mask, turn_ids.cpu(), trajectory.cpu())
    reward = layout.gather(rewards.cpu().to(torch.float64))
    value = layout.gather(values.detach().cpu().to(torch.float64))
    following = torch.cat([value[:, 1:], torch.zeros(len(value), 1, dtype=value.dtype)], dim=1)[:, : value.shape[1]]
    if bootstrap_truncated:
        cut = torch.unique(layout.index[truncated.cpu()])
        cut = cut[layout.lengths[cut] > 0]
        last = layout.lengths[cut] - 1
        following[cut, last] = value[cut, last]
    advantages = _discounted(reward + gamma * following - value, gamma * lam)
    on_rows = layout.scatter(advantages, cpu_mask)
    targets = layout.scatter(advantages + value, cpu_mask)
    if whiten:
        on_rows = whiten_tokens(on_rows, cpu_mask)
    return Credit(on_rows.to(device=device, dtype=torch.float32), targets.to(device=device, dtype=torch.float32))


def _discounted(deltas: Tensor, decay: float) -> Tensor:
    """Σ_l decay^l · deltas[:, j+l], for (M, L) sequences that are 0 behind their ends."""
    result = torch.empty_like(deltas)
    running = torch.zeros(len(deltas), dtype=deltas.dtype)
    for step in range(deltas.shape[1] - 1, -1, -1):
        running = deltas[:, step] + decay * running
        result[:, step] = running
    return result
