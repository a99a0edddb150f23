"""GAE over turns first, then over the tokens of each turn (bi-level GAE)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import KL_IN_REWARD, register_advantage
from ragen.algos.advantages.gae import last_values
from ragen.algos.credit import Credit
from ragen.algos.recursion import backward
from ragen.algos.reduce import whiten as whiten_tokens
from ragen.algos.trajectories import Turns


@register_advantage("bi_level_gae", KL_IN_REWARD)
def bi_level_gae(
    rewards: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    trajectory: Tensor,
    values: Tensor,
    truncated: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
    gamma_turn: float = 1.0,
    lam_turn: float = 1.0,
    whiten: bool = False,
    bootstrap_truncated: bool = False,
) -> Credit:
    """Over turns k, then over the sampled tokens j = 1 … n of a turn:

        A_k = δ_k + γ_turn λ_turn A_{k+1},   δ_k = r_k + γ_turn V_{k+1} − V_k
        A_{k,n} = A_k;   A_{k,j} = δ_{k,j} + γ λ A_{k,j+1},   δ_{k,j} = r_{k,j} + γ V_{k,j+1} − V_{k,j}   for j < n

    V_k and r_k stand on the last sampled token of turn k. A turn without a reward is a turn like any other: turns come from
    ``turn_ids``, never from rewards. Rewards on earlier tokens (a KL term) count inside their turn only, as in the source.
    ``value_targets`` = A + V at every token: at a turn's end that is the λ-return over turns, which is the terminal value of
    the tokens before it. ``whiten`` and ``bootstrap_truncated`` (over turns) as in ``gae``. With one turn it equals ``gae``;
    so it does, for any number of turns, with all four decays 1 and rewards on turns' ends. Float64 on the CPU.

    Shapes: ``rewards``, ``mask``, ``turn_ids``, ``values`` (R, T); ``trajectory``, ``truncated`` (R,).
    Source: VAGEN (arXiv 2510.16907). Deviation: its released code finds turn ends by non-zero rewards.
    """
    given, turns = values.detach().cpu(), Turns.of(mask, turn_ids, trajectory)
    reward, value = turns.last(rewards).to(torch.float64), turns.last(given).to(torch.float64)
    after = last_values(turns, values, truncated) if bootstrap_truncated else None
    finals = _over_turns(reward, value, turns.present, after, gamma=gamma_turn, lam=lam_turn)
    ends = turns.on_last(torch.ones_like(turns.present), torch.zeros_like(turns.mask))
    tables = rewards.cpu(), given, turns.mask, turns.turn_ids
    advantages, targets = backward(*tables, turns.index, gamma=gamma, decay=gamma * lam, ends=(ends, finals))
    if whiten:
        advantages = whiten_tokens(advantages, turns.mask)
    return Credit(advantages.to(rewards.device), targets.to(rewards.device))


def _over_turns(
    rewards: Tensor, values: Tensor, present: Tensor, after: Tensor | None, *, gamma: float, lam: float
) -> Tensor:
    """GAE over tables (M, K) of turns; a turn that is not ``present`` is no step."""
    out = torch.zeros_like(rewards)
    advantage = torch.zeros(len(rewards), dtype=torch.float64)
    following = torch.zeros_like(advantage) if after is None else after
    for k in range(rewards.shape[1] - 1, -1, -1):
        here = present[:, k]
        new = rewards[:, k] + gamma * following - values[:, k] + gamma * lam * advantage
        advantage = torch.where(here, new, advantage)
        following = torch.where(here, values[:, k], following)
        out[:, k] = advantage
    return out
