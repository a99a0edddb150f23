"""Rules that compare whole episodes, with numbers worked out by hand and brute force over subsets."""

import math
from itertools import combinations
from statistics import mean, pstdev

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.algos.advantages import (
    dr_grpo,
    grpo,
    pass_at_k,
    reinforce,
    reinforce_pp,
    reinforce_pp_baseline,
    rloo,
    running_mean,
)
from ragen.algos.credit import Credit


def of_returns(rule, returns: list[float], groups: list[int], **options) -> list[float]:
    """Advantages of one-token trajectories."""
    rewards = torch.tensor(returns, dtype=torch.float64)[:, None]
    rows = len(returns)
    got = rule(rewards, torch.ones(rows, 1, dtype=torch.bool), torch.arange(rows), torch.tensor(groups), **options)
    assert got.value_targets is None
    assert got.advantages.dtype == torch.float32
    return got.advantages[:, 0].tolist()


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    assert of_returns(rloo, [1, 2, 6, 9], [0, 0, 0, 1]) == [-3.0, -1.5, 4.5, 0.0]


def test_b4_rloo_of_seven_equal_returns_and_another_leaves_no_residue() -> None:
    # the single one: 0 − 0.35; the others: 0.35 − 6 · 0.35 / 7 = 0.05
    got = of_returns(rloo, [0.35] * 7 + [0.0], [0] * 8)
    assert got == pytest.approx([0.05] * 7 + [-0.35], abs=1e-7)
    assert of_returns(rloo, [0.35] * 8, [0] * 8) == [0.0] * 8


@settings(max_examples=30)
@given(returns=st.lists(st.integers(-5, 5), min_size=2, max_size=6))
def test_rloo_equals_its_definition(returns: list[int]) -> None:
    expected = [r - (sum(returns) - r) / (len(returns) - 1) for r in returns]
    assert of_returns(rloo, returns, [3] * len(returns)) == pytest.approx(expected, abs=1e-5)


def test_dr_grpo_is_grpo_without_its_division() -> None:
    returns, groups = [0.5, 2, 1, 7, 7], [0, 0, 0, 1, 1]
    assert of_returns(dr_grpo, returns, groups) == of_returns(grpo, returns, groups, normalize_std=False)
    assert of_returns(dr_grpo, [1, 3], [0, 0]) == [-1.0, 1.0]


def test_one_standard_deviation_for_the_batch_over_tokens_without_flat_groups() -> None:
    # group 0: C = −1 on one token, +1 on three; mean 0.5, variance (2.25 + 3 · 0.25) / 3 = 1. Group 1 is flat
    mask = torch.tensor([[True, False, False], [True] * 3, [True] * 3, [True, True, False]])
    rewards = torch.tensor([[0.0, 0, 0], [0, 2, 0], [0, 0, 5], [5, 0, 0]])
    got = reinforce_pp_baseline(rewards, mask, torch.arange(4), torch.tensor([0, 0, 1, 1])).advantages
    torch.testing.assert_close(got, torch.tensor([[-1.5, 0, 0], [0.5] * 3, [0.0] * 3, [0.0] * 3]))


def test_a_batch_of_flat_groups_has_no_credit_at_all() -> None:
    assert of_returns(reinforce_pp_baseline, [0.1, 0.1, 0.7], [0, 0, 1]) == [0.0, 0.0, 0.0]


def test_returns_to_go_are_standardised_over_the_tokens_of_the_batch() -> None:
    # G = 1, 1, 0; mean 2/3, std √(1/3)
    mask = torch.tensor([[True, True], [True, False]])
    turns = torch.where(mask, 0, -1)
    got = reinforce_pp(torch.tensor([[0.0, 1.0], [0.0, 9.0]]), mask, turns, torch.arange(2)).advantages
    expected = torch.tensor([[1, 1], [-2, 0]]) / math.sqrt(3)
    torch.testing.assert_close(got, expected.float())


def test_reinforce_pp_discounts_over_sampled_tokens_of_all_segments() -> None:
    # the trajectory's second segment (row 0) holds 4: G = 1, 2, 4 with γ = 0.5; another trajectory has G = 5
    mask = torch.tensor([[True, False], [True, True], [True, False]])
    turns = torch.tensor([[1, -1], [0, 0], [0, -1]])
    rewards = torch.tensor([[4.0, 7.0], [0.0, 0.0], [5.0, 7.0]])
    got = reinforce_pp(rewards, mask, turns, torch.tensor([8, 8, 3]), gamma=0.5).advantages
    values = torch.tensor([4.0, 1.0, 2.0, 5.0])
    expected = (values - values.mean()) / values.std()
    torch.testing.assert_close(got[mask], expected)


def test_reinforce_subtracts_the_baseline() -> None:
    mask = torch.tensor([[True, True], [True, False]])
    rewards = torch.tensor([[1.0, 2.0], [0.5, math.nan]])
    got: Credit = reinforce(rewards, mask, torch.arange(2), torch.tensor(0.25, dtype=torch.float64))
    assert got.advantages.tolist() == [[2.75, 2.75], [0.25, 0.0]]


def test_the_running_mean_counts_trajectories_and_forgets() -> None:
    mask, trajectory = torch.tensor([[True], [True], [False], [True]]), torch.tensor([0, 1, 2, 0])
    rewards = torch.tensor([[1.0], [4.0], [math.nan], [2.0]])
    assert running_mean(0.0, 0.0, rewards, mask, trajectory, decay=0.5) == (7.0, 2.0)  # returns 3 and 4
    assert running_mean(10.0, 4.0, rewards, mask, trajectory, decay=0.5) == (12.0, 4.0)
    assert running_mean(10.0, 4.0, rewards, mask, trajectory, decay=1.0) == (17.0, 6.0)
    assert running_mean(10.0, 4.0, rewards, mask, trajectory, decay=0.0) == (7.0, 2.0)


def by_subsets(returns: list[float], k: int, *, normalize: bool, eps: float) -> list[float]:
    """The definition, over all subsets of k members."""
    subsets = list(combinations(range(len(returns)), k))
    best = [max(returns[i] for i in subset) for subset in subsets]
    scale = pstdev(best) + eps if normalize else 1.0
    own = [mean(b for b, subset in zip(best, subsets, strict=True) if i in subset) for i in range(len(returns))]
    return [(value - mean(best)) / scale for value in own]


@settings(max_examples=60)
@given(
    returns=st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=2, max_size=6),
    k=st.integers(1, 5),
    normalize=st.booleans(),
)
def test_pass_at_k_equals_the_mean_over_all_subsets(returns: list[float], k: int, normalize: bool) -> None:
    k = min(k, len(returns))
    got = of_returns(pass_at_k, returns, [0] * len(returns), k=k, normalize_std=normalize, eps=1e-3)
    assert got == pytest.approx(by_subsets(returns, k, normalize=normalize, eps=1e-3), abs=1e-5)


def test_pass_at_k_of_wins_and_losses_is_the_closed_form_of_the_source() -> None:
    # n = 4, one win, k = 2: R̄ = 1 − C(3,2)/C(4,2) = 0.5, σ = 0.5; win (1 − 0.5)/0.5, loss (1 − 0.5 − C(2,1)/C(3,1))/0.5
    assert of_returns(pass_at_k, [0, 1, 0, 0], [0] * 4, k=2, eps=0.0) == pytest.approx([-1 / 3, 1, -1 / 3, -1 / 3])


def test_pass_at_k_of_groups_of_different_sizes() -> None:
    together = of_returns(pass_at_k, [0, 1, 5, 2, 2, 0], [0, 0, 1, 0, 1, 1], k=2, eps=0.0)
    one, two = (of_returns(pass_at_k, values, [0] * 3, k=2, eps=0.0) for values in ([0, 1, 2], [5, 2, 0]))
    assert together == pytest.approx([one[0], one[1], two[0], one[2], two[1], two[2]])
    assert of_returns(pass_at_k, [0, 1, 3], [0, 0, 1], k=2) == [0.0, 0.0, 0.0]  # as many members as k, or fewer


def test_pass_at_k_is_exactly_zero_where_every_choice_holds_a_best_member() -> None:
    assert of_returns(pass_at_k, [0.7, 0.1, 0.7, 0.7], [0] * 4, k=2, eps=0.0) == [0.0] * 4
    assert of_returns(pass_at_k, [0.7, 0.1, 0.1, 0.7], [0] * 4, k=2, eps=0.0)[1] < 0
