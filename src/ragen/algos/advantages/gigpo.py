"""Group-relative advantages of episodes, and of turns that began in the same state (GiGPO)."""

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.advantages.grpo import episode_relative
from ragen.algos.credit import Credit
from ragen.algos.groups import numbered, relative
from ragen.algos.trajectories import Episodes, Turns


@register_advantage("gigpo")
def gigpo(
    rewards: Tensor,
    mask: Tensor,
    turn_ids: Tensor,
    trajectory: Tensor,
    group: Tensor,
    anchors: Tensor,
    *,
    gamma_turn: float = 1.0,
    turn_coef: float = 1.0,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> Credit:
    """A_{i,k} = N(R(τ_i)) + turn_coef · N_s(G_{i,k}),  G_{i,k} = Σ_{l≥k} γ_turn^{l−k} r_{i,l},  on the tokens of turn k.

    N standardises within the group (as ``grpo``); N_s among all turns of the group, of the same trajectory too, that began
    in the same anchor state s (equal ``anchors`` ≥ 0), whatever their number. A turn that shares its state with no other, or
    whose state is not known (−1), has the first term only. l counts the turns with a sampled token. ``normalize_std=False``
    only subtracts the means (the source's F_norm = 1). Computed in float64 on the CPU.

    Shapes: ``rewards``, ``mask``, ``turn_ids``, ``anchors`` (R, T); ``trajectory``, ``group`` (R,).
    Source: GiGPO (arXiv 2505.10978), its ω is ``turn_coef``. Deviation: the standard deviations have Bessel's correction.
    """
    episodes, turns = Episodes.of(rewards, mask, trajectory), Turns.of(mask, turn_ids, trajectory)
    outcome = episode_relative(episodes, group, normalize_std=normalize_std, eps=eps)
    to_go = turns.returns_to_go(rewards, gamma_turn)
    anchor = torch.where(turns.present, anchors.cpu()[turns.rows, turns.columns], -1)
    owner, turn = (anchor >= 0).nonzero(as_tuple=True)
    number = numbered(episodes.of_rows(group)[owner], anchor[owner, turn])
    table = torch.zeros_like(to_go)
    table[owner, turn] = relative(to_go[owner, turn], number, normalize_std=normalize_std, eps=eps)
    return Credit(turns.on_tokens(outcome[:, None] + turn_coef * table).to(rewards.device))
