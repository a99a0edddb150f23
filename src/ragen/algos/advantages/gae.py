"""Generalised advantage estimation over the sampled tokens of whole trajectories."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import KL_IN_REWARD, register_advantage
from ragen.algos.credit import Credit
from ragen.algos.recursion import backward
from ragen.algos.reduce import trajectory_index
from ragen.algos.reduce import whiten as whiten_tokens
from ragen.algos.trajectories import Turns


@register_advantage("gae", KL_IN_REWARD)
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
    tables = rewards.cpu(), values.detach().cpu(), mask.cpu(), turn_ids.cpu()
    index, _ = trajectory_index(trajectory.cpu())
    after = last_values(Turns.of(mask, turn_ids, trajectory), values, truncated) if bootstrap_truncated else None
    advantages, targets = backward(*tables, index, gamma=gamma, decay=gamma * lam, after=after)
    if whiten:
        advantages = whiten_tokens(advantages, mask.cpu())
    return Credit(advantages.to(rewards.device), targets.to(rewards.device))


def last_values(turns: Turns, values: Tensor, truncated: Tensor) -> Tensor:
    """(M,) float64: V (R, T) of the last sampled token where the trajectory was ``truncated`` (R,), else 0."""
    out = torch.zeros(len(turns.present), dtype=torch.float64)
    if turns.present.numel():
        number = torch.arange(turns.present.shape[1])
        last = torch.where(turns.present, number, -1).amax(dim=1).clamp(min=0)
        out = turns.last(values.detach()).to(torch.float64).gather(1, last[:, None])[:, 0]
    cut = torch.zeros(len(out), dtype=torch.bool)
    cut[turns.index[truncated.cpu()]] = True
    return torch.where(cut, out, 0.0)
