"""Group-relative advantages of the outcome and of each turn (MT-GRPO)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.advantages.grpo import episode_relative
from ragen.algos.credit import Credit
from ragen.algos.groups import numbered, relative
from ragen.algos.trajectories import Episodes, Turns


@register_advantage("turn_grpo")
def turn_grpo(
    rewards: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    trajectory: Tensor,
    group: Tensor,
    *,
    turn_coef: float = 1.0,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> Credit:
    """A_{i,k} = N(R(τ_i)) + turn_coef · N_k(r_{i,k}), the same for every sampled token of turn k of τ_i.

    N standardises within the group (as ``grpo``), N_k among the group's members that reached turn k; r_{i,k} is the sum of
    the rewards of turn k, zero-reward turns included. ``normalize_std=False`` only subtracts the means. Where all are equal
    the term is exactly 0. Computed in float64 on the CPU.

    Deviations: the source has two turns, weights the outcome (λ) instead of the turn, keeps outcome and turn rewards apart,
    and gives the last turn the outcome alone. Environments here pay by the turn, so R(τ) is the sum of them and every turn
    has both terms.
    Shapes: ``rewards``, ``mask``, ``turn_ids`` (R, T); ``trajectory``, ``group`` (R,).
    Source: MT-GRPO (arXiv 2505.11821).
    """
    episodes, turns = Episodes.of(rewards, mask, trajectory), Turns.of(mask, turn_ids, trajectory)
    outcome = episode_relative(episodes, group, normalize_std=normalize_std, eps=eps)
    owner, turn = turns.present.nonzero(as_tuple=True)
    number = numbered(episodes.of_rows(group)[owner], turn)
    table = torch.zeros(turns.present.shape, dtype=torch.float64)
    paid = turns.returns_to_go(rewards, gamma=0.0)
    table[owner, turn] = relative(paid[owner, turn], number, normalize_std=normalize_std, eps=eps)
    return Credit(turns.on_tokens(outcome[:, None] + turn_coef * table).to(rewards.device))
