"""Generalised advantage estimation, with numbers worked out by hand and a plain second implementation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.algos.advantages import gae
from ragen.algos.credit import Credit

NAN = math.nan


def one_row(rewards: list[float], mask: list[int], values: list[float], **options: object) -> Credit:
    on = torch.tensor([mask], dtype=torch.bool)
    zero = torch.zeros(1, dtype=torch.int64)
    return gae(
        torch.tensor([rewards]),
        on,
        torch.where(on, 0, -1),
        zero,
        torch.tensor([values]),
        torch.tensor([bool(options.pop("truncated", False))]),
        **options,  # type: ignore[arg-type]
    )


def test_b9_observation_tokens_do_not_decay_the_reward() -> None:
    got = one_row([0, 0, 0, 1, 0], [1, 0, 0, 1, 0], [0.0] * 5, gamma=0.9, lam=1.0)
    torch.testing.assert_close(got.advantages, torch.tensor([[0.9, 0, 0, 1, 0]]))


def test_b9_with_gamma_zero_the_reward_still_reaches_the_last_sampled_token() -> None:
    assert one_row([0, 0, 0, 1, 0], [1, 0, 0, 1, 0], [0.0] * 5, gamma=0.0).advantages.tolist() == [[0, 0, 0, 1, 0]]


def test_b10_a_value_off_the_mask_is_no_bootstrap() -> None:
    got = one_row([0, 1, 0], [1, 1, 0], [0, 0, 100.0], gamma=1.0, lam=0.95)
    torch.testing.assert_close(got.advantages, torch.tensor([[0.95, 1, 0]]))


def test_advantages_and_targets_by_hand() -> None:
    # γ = 0.5, λ = 0.5; V = 1, 2, 3; r = 0, 0, 4: δ = 0, −0.5, 1
    got = one_row([0, 0, 4], [1, 1, 1], [1, 2, 3], gamma=0.5, lam=0.5)
    torch.testing.assert_close(got.advantages, torch.tensor([[-0.0625, -0.25, 1.0]]))
    torch.testing.assert_close(got.value_targets, torch.tensor([[0.9375, 1.75, 4.0]]))


def test_b14_the_last_value_is_used_iff_truncated_and_asked_for() -> None:
    for truncated, asked, last in ((False, False, -2.0), (True, False, -2.0), (False, True, -2.0), (True, True, 0.0)):
        options = {"truncated": truncated, "bootstrap_truncated": asked}
        got = one_row([0, 0, 0], [1, 1, 0], [1, 2, NAN], gamma=1.0, lam=0.0, **options)
        assert got.advantages.tolist() == [[1.0, last, 0.0]], (truncated, asked)


def test_b14_bootstrap_touches_only_the_last_segment_of_the_truncated_trajectory() -> None:
    mask = torch.ones(3, 1, dtype=torch.bool)
    turns, trajectory = torch.tensor([[0], [1], [0]]), torch.tensor([0, 0, 1])
    values, truncated = torch.tensor([[1.0], [5.0], [7.0]]), torch.tensor([True, True, False])
    got = gae(torch.zeros(3, 1), mask, turns, trajectory, values, truncated, lam=0.0, bootstrap_truncated=True)
    assert got.advantages.tolist() == [[4.0], [0.0], [-7.0]]


def test_segments_of_a_trajectory_are_one_sequence() -> None:
    # γ = 0.5, V = 0: the reward of the second segment (row 0) reaches the first (row 2), one step a token
    mask = torch.tensor([[True, True], [True, False], [False, True]])
    turns = torch.tensor([[1, 1], [0, -1], [-1, 0]])
    rewards = torch.tensor([[0.0, 8.0], [3.0, NAN], [NAN, 0.0]])
    trajectory = torch.tensor([4, 9, 4])
    got = gae(rewards, mask, turns, trajectory, torch.zeros(3, 2), torch.zeros(3, dtype=torch.bool), gamma=0.5)
    assert got.advantages.tolist() == [[4.0, 8.0], [3.0, 0.0], [0.0, 2.0]]


def test_whitening_comes_after_the_value_targets() -> None:
    plain = one_row([0, 0, 4], [1, 1, 1], [1, 2, 3], gamma=0.5, lam=0.5)
    white = one_row([0, 0, 4], [1, 1, 1], [1, 2, 3], gamma=0.5, lam=0.5, whiten=True)
    assert plain.value_targets is not None
    assert white.value_targets is not None
    assert torch.equal(white.value_targets, plain.value_targets)
    assert white.advantages.mean().item() == pytest.approx(0, abs=1e-6)
    assert white.advantages.std().item() == pytest.approx(1, abs=1e-6)


def test_d6_a_batch_without_a_sampled_token_has_no_credit() -> None:
    mask, trajectory = torch.zeros(2, 3, dtype=torch.bool), torch.arange(2)
    nothing = torch.full((2, 3), NAN)
    cut = torch.ones(2, dtype=torch.bool)
    got = gae(nothing, mask, torch.full((2, 3), -1), trajectory, nothing, cut, whiten=True, bootstrap_truncated=True)
    assert torch.equal(got.advantages, torch.zeros(2, 3))
    assert got.value_targets is not None
    assert torch.equal(got.value_targets, torch.zeros(2, 3))


def by_definition(rewards: Tensor, values: Tensor, gamma: float, lam: float) -> list[float]:
    """A_j = Σ_l (γλ)^l δ_{j+l} as a double sum over one sequence."""
    n = len(rewards)
    after = [*values.tolist()[1:], 0.0]
    deltas = [float(rewards[j]) + gamma * after[j] - float(values[j]) for j in range(n)]
    return [sum((gamma * lam) ** step * deltas[j + step] for step in range(n - j)) for j in range(n)]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(1, 4),
    width=st.integers(1, 7),
    gamma=st.sampled_from([0.0, 0.5, 0.97, 1.0]),
    lam=st.sampled_from([0.0, 0.9, 1.0]),
)
def test_equals_the_double_sum_of_the_definition(seed: int, rows: int, width: int, gamma: float, lam: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, width, generator=generator) < 0.6
    rewards, values = torch.randn(2, rows, width, generator=generator)
    cut = torch.zeros(rows, dtype=torch.bool)
    got = gae(rewards, mask, torch.where(mask, 0, -1), torch.arange(rows), values, cut, gamma=gamma, lam=lam)
    for row in range(rows):
        expected = by_definition(rewards[row][mask[row]], values[row][mask[row]], gamma, lam)
        assert got.advantages[row][mask[row]].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), width=st.integers(1, 12))
def test_with_gamma_lambda_one_and_no_values_it_is_reward_to_go(seed: int, width: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(1, width, generator=generator) < 0.7
    rewards = torch.randn(1, width, generator=generator) * mask
    zero = torch.zeros(1, dtype=torch.int64)
    got = gae(rewards, mask, torch.where(mask, 0, -1), zero, torch.zeros(1, width), zero.bool())
    to_go = rewards.flip(1).cumsum(1).flip(1) * mask
    torch.testing.assert_close(got.advantages, to_go, rtol=1e-5, atol=1e-5)
