"""Group-relative advantages of the best of k members (pass@k training)."""

from math import comb

import torch
from torch import Tensor

from ragen.algos.advantages.base import register_advantage
from ragen.algos.credit import Credit
from ragen.algos.groups import numbered, sizes
from ragen.algos.trajectories import Episodes


@register_advantage("pass_at_k")
def pass_at_k(
    rewards: Tensor,
    mask: Tensor,
    trajectory: Tensor,
    group: Tensor,
    *,
    k: int = 4,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> Credit:
    """A_{i,j} = (E_S[max_S R | i ∈ S] − E_S[max_S R]) / (std_S[max_S R] + eps), for every sampled token of τ_i.

    S runs over all subsets of k of the group's n members (with a sampled token), exactly: with ranks ρ = 1 … n by R,
    P(max_S R = R_ρ) = C(ρ−1, k−1) / C(n, k). Where R is 0 or 1 with m zeros this is the source's closed form: the group's
    value is R̄ = 1 − C(m, k)/C(n, k), its std √(R̄ (1 − R̄)), and the numerators are 1 − R̄ and
    1 − R̄ − C(m−1, k−1)/C(n−1, k−1). Returns of any size are a generalisation (max@k of arXiv 2503.19595). ``k`` = 1 is
    ``grpo`` with the standard deviation of the population. ``normalize_std=False`` leaves the division out.

    A group of fewer than k members takes all of them as S. Where every S has the same best (its k-th smallest return is the
    largest: a flat group, k = n) all is exactly 0. Computed in float64 on the CPU.

    Shapes: ``rewards``, ``mask`` (R, T); ``trajectory``, ``group`` (R,).
    Source: pass@k training (arXiv 2508.10751, analytical derivation).
    """
    episodes = Episodes.of(rewards, mask, trajectory)
    inside = episodes.counted.nonzero()[:, 0]
    returns = episodes.returns[inside]
    number = numbered(episodes.of_rows(group)[inside])
    size = sizes(number)
    # members in the order of (group, return): each group is one stretch
    order = torch.argsort(returns, stable=True)
    order = order[torch.argsort(number[order], stable=True)]
    found = torch.zeros_like(returns)
    for n in set(size.tolist()):
        members = order[size[number[order]] == n].view(-1, n)
        found[members] = _of_sorted(returns[members], min(k, n), normalize_std=normalize_std, eps=eps)
    advantages = torch.zeros_like(episodes.returns)
    advantages[inside] = found
    return episodes.credit(advantages, rewards.device)


def _of_sorted(returns: Tensor, k: int, *, normalize_std: bool, eps: float) -> Tensor:
    """The advantages (P, n) of groups of n ≥ k members whose ``returns`` (P, n) ascend."""
    n = returns.shape[1]
    best = torch.tensor([comb(rank, k - 1) / comb(n, k) for rank in range(n)], dtype=returns.dtype)
    own = torch.tensor([comb(rank, k - 1) / comb(n - 1, k - 1) for rank in range(n)], dtype=returns.dtype)
    above = [comb(rank - 1, k - 2) / comb(n - 1, k - 1) if rank and k > 1 else 0.0 for rank in range(n)]
    weighted = returns * torch.tensor(above, dtype=returns.dtype)
    later = weighted.flip(1).cumsum(1).flip(1) - weighted
    mean = (returns * best).sum(dim=1, keepdim=True)
    advantages = returns * own + later - mean
    if normalize_std:
        variance = ((returns - mean).square() * best).sum(dim=1, keepdim=True)
        advantages = advantages / (variance.sqrt() + eps)
    return torch.where(returns[:, k - 1 : k] == returns[:, -1:], 0.0, advantages)
