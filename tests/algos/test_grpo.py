"""Group-relative advantages, with numbers worked out by hand."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

from ragen.algos.advantages import grpo, pass_at_k, reinforce_pp_baseline, rloo
from ragen.algos.trajectories import Episodes


def credit(
    returns: list[float],
    groups: list[int],
    *,
    dtype: torch.dtype = torch.float32,
    normalize_std: bool = True,
    eps: float = 1e-6,
) -> list[float]:
    """Advantages of one-token trajectories."""
    rows = len(returns)
    rewards = torch.tensor(returns, dtype=dtype)[:, None]
    mask = torch.ones(rows, 1, dtype=torch.bool)
    got = grpo(rewards, mask, torch.arange(rows), torch.tensor(groups), normalize_std=normalize_std, eps=eps)
    assert got.value_targets is None
    assert got.advantages.dtype == torch.float32
    return got.advantages[:, 0].tolist()


def test_b1_groups_are_standardised_one_by_one() -> None:
    expected = 0.5 / math.sqrt(1 / 3)  # Bessel: variance of [0,0,1,1] is 1/3
    got = credit([0, 0, 1, 1, 5, 5, 6, 6], [0] * 4 + [1] * 4)
    assert got == pytest.approx([-expected, -expected, expected, expected] * 2, rel=1e-5)


def test_b2_uneven_interleaved_groups_and_a_group_of_one() -> None:
    assert credit([1, 3, 5], [0, 0, 1], normalize_std=False) == [-1.0, 1.0, 0.0]
    assert credit([5, 1, 3], [1, 0, 0], normalize_std=False) == [0.0, -1.0, 1.0]
    assert credit([1, 5, 3], [7, 2, 7], normalize_std=False) == [-1.0, 0.0, 1.0]
    assert credit([1, 3, 5], [0, 0, 1]) == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2), 0.0], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.1, 0.35, -0.7, 1e-8, 1e8])
def test_b3_b4_a_flat_group_gets_exactly_zero(reward: float, dtype: torch.dtype) -> None:
    assert credit([reward] * 8, [0] * 8, dtype=dtype) == [0.0] * 8
    assert credit([reward] * 8, [0] * 8, dtype=dtype, eps=0.0) == [0.0] * 8


def test_b3_equal_totals_of_different_turns_are_flat() -> None:
    # −0.1 −0.1 +1 and +1 −0.1 −0.1 differ by rounding if summed carelessly
    third = -0.1 - 0.1 - 0.1
    for dtype, rows in (
        (torch.float32, [[-0.1, -0.1, 1.0], [1.0, -0.1, -0.1], [-0.1, 1.0, -0.1]]),
        (torch.float64, [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.6, 0.0, 0.0]]),
        (torch.float64, [[third, third, 0.0], [-0.5, -0.1, 0.0], [-0.2, -0.2, -0.2]]),  # tenths, over other turns
        (torch.float64, [[0.5, -0.5, 0.0], [0.9 + third, third, third], [-0.5, 0.5, 0.0]]),  # 0, 0 and −1.1e-16
    ):
        rewards, group = torch.tensor(rows, dtype=dtype), torch.zeros(3, dtype=torch.int64)
        mask = torch.ones(3, 3, dtype=torch.bool)
        for rule in (partial(grpo, eps=0.0), rloo, reinforce_pp_baseline, partial(pass_at_k, k=1, eps=0.0)):
            assert torch.equal(rule(rewards, mask, torch.arange(3), group).advantages, torch.zeros(3, 3))


def test_b3_a_difference_far_below_the_rewards_but_above_rounding_counts() -> None:
    rewards = torch.tensor([[1e3, 0.1], [1e3, 0.1 + 1e-8]], dtype=torch.float64)
    got = grpo(rewards, torch.ones(2, 2, dtype=torch.bool), torch.arange(2), torch.zeros(2, dtype=torch.int64), eps=0.0)
    assert got.advantages[:, 0].tolist() == pytest.approx([-1 / math.sqrt(2), 1 / math.sqrt(2)], rel=1e-4)
    assert Episodes.of(
        torch.tensor([[math.nan], [1.0]], dtype=torch.float64), torch.ones(2, 1, dtype=torch.bool), torch.arange(2)
    ).returns.isnan().tolist() == [True, False]


def test_b5_a_large_reward_elsewhere_makes_no_group_flat() -> None:
    rewards = torch.tensor([[0.0], [5e-5], [0.0], [1e9]], dtype=torch.float64)
    advantages = grpo(rewards, torch.ones(4, 1, dtype=torch.bool), torch.arange(4), torch.tensor([0, 0, 1, 1])).advantages
    assert advantages[:2, 0].tolist() == pytest.approx([-0.688, 0.688], abs=1e-3)


def test_b4_a_nearly_flat_group_is_bounded() -> None:
    # |A| ≤ (n−1)/√n for any group of n, however small its spread
    got = credit([0.35] * 7 + [0.35 + 1e-6], [0] * 8, dtype=torch.float64)
    assert max(abs(a) for a in got) <= 7 / math.sqrt(8)
    assert credit([0.35] * 7 + [0.0], [0] * 8)[-1] == pytest.approx(-7 / math.sqrt(8), rel=1e-4)


def test_eps_is_added_to_the_standard_deviation() -> None:
    assert credit([0, 1], [0, 0], eps=0.5) == pytest.approx([-0.5 / (math.sqrt(0.5) + 0.5), 0.5 / (math.sqrt(0.5) + 0.5)])


def test_b5_flatness_is_decided_in_each_group_alone() -> None:
    got = credit([1, 1, 1, 0, 1, 2], [0, 0, 0, 1, 1, 1])
    assert got[:3] == [0.0, 0.0, 0.0]
    assert got[3:] == pytest.approx([-1.0, 0.0, 1.0], abs=1e-5)


def test_b15_turn_rewards_reach_the_advantages() -> None:
    rewards = torch.tensor([[-0.1, 0.0, -0.1, 1.0], [-0.1, 0.0, -0.1, -0.1]])
    mask = torch.tensor([[True, False, True, True]] * 2)
    group = torch.zeros(2, dtype=torch.int64)
    got = grpo(rewards, mask, torch.arange(2), group, normalize_std=False).advantages
    torch.testing.assert_close(got, torch.tensor([[0.55, 0.0, 0.55, 0.55], [-0.55, 0.0, -0.55, -0.55]]))


def test_b12_a_reward_off_the_mask_is_not_part_of_the_return() -> None:
    rewards = torch.tensor([[0.0, 0.0, 1.0, 99.0, math.nan], [0.0, 0.0, 0.0, 99.0, math.nan]])
    mask = torch.tensor([[True, True, True, False, False]] * 2)
    group = torch.zeros(2, dtype=torch.int64)
    got = grpo(rewards, mask, torch.arange(2), group, normalize_std=False).advantages
    assert got.tolist() == [[0.5, 0.5, 0.5, 0.0, 0.0], [-0.5, -0.5, -0.5, 0.0, 0.0]]


def test_a_trajectory_of_two_segments_is_one_member_of_its_group() -> None:
    # trajectory 0 = rows 0 and 2 with 1 + 2, trajectory 1 = row 1 with 0; counted by rows the mean would be 1
    rewards = torch.tensor([[1.0], [0.0], [2.0]])
    mask = torch.ones(3, 1, dtype=torch.bool)
    got = grpo(rewards, mask, torch.tensor([0, 1, 0]), torch.zeros(3, dtype=torch.int64), normalize_std=False)
    assert got.advantages.tolist() == [[1.5], [-1.5], [1.5]]


def test_d6_a_trajectory_without_a_sampled_token_takes_no_part() -> None:
    mask = torch.tensor([[True], [True], [False]])
    rewards: Tensor = torch.tensor([[1.0], [3.0], [math.nan]])
    group = torch.zeros(3, dtype=torch.int64)
    got = grpo(rewards, mask, torch.arange(3), group, normalize_std=False).advantages
    assert got.tolist() == [[-1.0], [1.0], [0.0]]


def test_d6_a_batch_without_a_sampled_token_has_no_credit() -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    group = torch.zeros(2, dtype=torch.int64)
    got = grpo(torch.full((2, 3), math.nan), mask, torch.arange(2), group)
    assert torch.equal(got.advantages, torch.zeros(2, 3))
