"""GAE with a decay that grows with the trajectory's length, and undecayed value targets (VAPO)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import KL_IN_REWARD, register_advantage
from ragen.algos.advantages.gae import last_values
from ragen.algos.credit import Credit
from ragen.algos.recursion import backward
from ragen.algos.reduce import trajectory_index
from ragen.algos.reduce import whiten as whiten_tokens
from ragen.algos.trajectories import Turns, trajectory_lengths


@register_advantage("vapo", KL_IN_REWARD)
def vapo(
    rewards: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    trajectory: Tensor,
    values: Tensor,
    truncated: Tensor,
    *,
    gamma: float = 1.0,
    length_alpha: float = 0.05,
    whiten: bool = False,
    bootstrap_truncated: bool = False,
) -> Credit:
    """``gae`` with λ = max(0, 1 − 1/(α |τ|)) for the advantages and λ = 1 for the value targets y_j = Σ_l γ^l r_{j+l}.

    |τ| counts the sampled tokens of the trajectory, so that Σ_l λ^l ≈ α |τ|: the weight of the TD errors reaches over the
    same share of a short and a long trajectory. ``length_alpha`` is α; where α |τ| ≤ 1, λ is 0. ``whiten`` and
    ``bootstrap_truncated`` as in ``gae``, the latter in the targets too. Start the critic first:
    ``optim.critic_warmup_steps``.

    Shapes: ``rewards``, ``mask``, ``turn_ids``, ``values`` (R, T); ``trajectory``, ``truncated`` (R,).
    Source: VAPO (arXiv 2504.05118, length-adaptive GAE, decoupled GAE). Deviation: the source's γ is 1 throughout.
    """
    if length_alpha <= 0:
        raise ValueError(f"length_alpha is {length_alpha}: it must be above 0")
    tables = mask.cpu(), turn_ids.cpu()
    index, count = trajectory_index(trajectory.cpu())
    lengths = trajectory_lengths(tables[0], index, count)
    lam = (1 - 1 / (length_alpha * lengths.clamp(min=1).to(torch.float64))).clamp(min=0)
    after = last_values(Turns.of(mask, turn_ids, trajectory), values, truncated) if bootstrap_truncated else None
    given = values.detach().cpu()
    advantages, targets = backward(
        rewards.cpu(), given, *tables, index, gamma=gamma, decay=gamma * lam, target_decay=gamma, after=after
    )
    if whiten:
        advantages = whiten_tokens(advantages, tables[0])
    return Credit(advantages.to(rewards.device), targets.to(rewards.device))
