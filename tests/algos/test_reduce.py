"""Masked means, aggregation weights and the way between rows and trajectories."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.algos import reduce
from ragen.algos.losses import ppo_clip
from ragen.algos.reduce import masked_mean, token_weights, weighted_sum, whiten

MODES = ("token-mean", "trajectory-mean", "trajectory-sum")
NAN = math.nan


def mask_of(lengths: list[int], width: int) -> Tensor:
    return torch.arange(width) < torch.tensor(lengths)[:, None]


def test_masked_mean_ignores_what_stands_off_the_mask() -> None:
    values = torch.tensor([[1.0, NAN, 3.0], [math.inf, 8.0, NAN]])
    assert masked_mean(values, torch.tensor([[True, False, True], [False, True, False]])).item() == 4.0


def test_d6_masked_mean_of_nothing_is_zero() -> None:
    assert masked_mean(torch.full((2, 3), NAN), torch.zeros(2, 3, dtype=torch.bool)).item() == 0.0


def test_whiten_by_hand() -> None:
    values = torch.tensor([[1.0, NAN, 3.0], [5.0, NAN, NAN]])  # mean 3, Bessel std 2
    mask = torch.tensor([[True, False, True], [True, False, False]])
    expected = torch.tensor([[-1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(whiten(values, mask), expected)


@pytest.mark.parametrize("inside", [[], [0.35], [0.35] * 8])
def test_whiten_of_equal_or_too_few_values_is_exactly_zero(inside: list[float]) -> None:
    values = torch.tensor([[*inside, NAN]])
    mask = torch.tensor([[True] * len(inside) + [False]])
    assert torch.equal(whiten(values, mask), torch.zeros_like(values))


def test_weights_of_each_mode_by_hand() -> None:
    # trajectory 7: 3 tokens in two segments (rows 0 and 2); trajectory 4: 1 token
    mask = torch.tensor([[True, True, False], [False, True, False], [True, False, False]])
    trajectory = torch.tensor([7, 4, 7])
    expected = {
        "token-mean": [1 / 4, 1 / 4, 1 / 4],
        "trajectory-mean": [1 / 6, 1 / 2, 1 / 6],  # 1 / (M |τ|), |τ| over all segments
        "trajectory-sum": [1 / 20, 1 / 20, 1 / 20],  # 1 / (M · 10)
    }
    for mode, per_row in expected.items():
        weights = token_weights(mask, trajectory, mode, constant=10.0)
        torch.testing.assert_close(weights, mask * torch.tensor(per_row)[:, None], msg=mode)


def test_b6_masked_tokens_are_not_in_the_denominator() -> None:
    mask = torch.ones(3, 10, dtype=torch.bool)
    mask[2, 5:] = False  # 30 tokens, 5 masked
    for mode in ("token-mean", "trajectory-mean"):
        weights = token_weights(mask, torch.arange(3), mode)
        assert weighted_sum(torch.ones(3, 10), weights).item() == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_d6_rows_without_a_trained_token_change_nothing(mode: str) -> None:
    mask = mask_of([3, 2], 4)
    plain = token_weights(mask, torch.tensor([0, 1]), mode)
    padded = token_weights(torch.cat([mask, torch.zeros(2, 4, dtype=torch.bool)]), torch.tensor([0, 1, 2, 1]), mode)
    assert torch.equal(padded[:2], plain)
    assert torch.equal(padded[2:], torch.zeros(2, 4))


@pytest.mark.parametrize("mode", MODES)
def test_d6_a_batch_without_a_trained_token_has_weight_zero(mode: str) -> None:
    assert torch.equal(token_weights(torch.zeros(2, 3, dtype=torch.bool), torch.arange(2), mode), torch.zeros(2, 3))


def test_trajectory_weights_scale_rows_and_leave_denominators_alone() -> None:
    mask = mask_of([2, 4], 4)
    soft = token_weights(mask, torch.arange(2), "trajectory-mean", trajectory_weights=torch.tensor([0.5, 0.0]))
    torch.testing.assert_close(soft.sum(dim=1), torch.tensor([0.25, 0.0]))


def test_unknown_aggregation_names_the_allowed_ones() -> None:
    with pytest.raises(ValueError, match="token-mean, trajectory-mean or trajectory-sum"):
        token_weights(torch.ones(1, 1, dtype=torch.bool), torch.zeros(1), "mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", MODES)
def test_b16_gradient_does_not_depend_on_the_micro_batch_split(mode: str) -> None:
    mask = mask_of([10, 2, 5], 10)  # the two-token row is segment two of trajectory 0
    trajectory = torch.tensor([0, 0, 1])
    generator = torch.Generator().manual_seed(0)
    old = torch.randn(3, 10, generator=generator)
    advantages = torch.randn(3, 10, generator=generator)
    weights = token_weights(mask, trajectory, mode, constant=7.0)
    gradients = []
    for split in ([[0, 1, 2]], [[0], [1], [2]], [[2, 0], [1]]):
        new = (old + 0.1).requires_grad_()
        for rows in split:
            ppo_clip(new[rows], old[rows], advantages[rows], weights[rows], clip_low=0.2, clip_high=0.2).loss.backward()
        gradients.append(new.grad)
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0], rtol=1e-5, atol=1e-8)


def test_b16_weights_agree_with_a_plain_mean_over_trajectories() -> None:
    mask, values = mask_of([10, 2], 10), torch.arange(20.0).reshape(2, 10)
    by_mode = {mode: weighted_sum(values, token_weights(mask, torch.arange(2), mode, constant=4.0)).item() for mode in MODES}
    assert by_mode["token-mean"] == pytest.approx((45 + 21) / 12, rel=1e-6)
    assert by_mode["trajectory-mean"] == pytest.approx((4.5 + 10.5) / 2, rel=1e-6)
    assert by_mode["trajectory-sum"] == pytest.approx((45 + 21) / 4 / 2, rel=1e-6)


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    owners=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    mode=st.sampled_from(["token-mean", "trajectory-mean"]),
)
def test_weights_sum_to_one_wherever_something_is_trained(lengths: list[int], owners: list[int], mode: str) -> None:
    weights = token_weights(mask_of(lengths, 6), torch.tensor(owners[: len(lengths)]), mode)
    assert weights.sum().item() == pytest.approx(1.0 if sum(lengths) else 0.0, abs=1e-5)


def test_weights_equal_brute_force_over_every_small_batch() -> None:
    for bits in itertools.product([False, True], repeat=6):
        mask = np.array(bits).reshape(3, 2)
        owner = [0, 1, 0]
        sizes = {m: sum(int(mask[row].sum()) for row in range(3) if owner[row] == m) for m in (0, 1)}
        live = sum(size > 0 for size in sizes.values())
        expected = [[1 / (live * sizes[owner[r]]) if mask[r, c] else 0.0 for c in range(2)] for r in range(3)]
        got = token_weights(torch.from_numpy(mask), torch.tensor(owner), "trajectory-mean")
        np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    block=st.integers(1, 9),
    share=st.sampled_from([0.2, 0.7, 1.0]),
    mean=st.sampled_from([0.0, 1e4]),
)
def test_whiten_over_several_blocks_equals_the_plain_computation(seed: int, block: int, share: float, mean: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(5, 7, generator=generator) + mean
    mask = torch.rand(5, 7, generator=generator) < share
    inside = values[mask].double()
    expected = torch.zeros(5, 7)
    if len(inside) > 1:
        expected[mask] = ((inside - inside.mean()) / (inside.std() + 1e-8)).float()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reduce, "BLOCK", block)
        got = whiten(torch.where(mask, values, NAN), mask)
        flat = whiten(torch.where(mask, 0.35, NAN), mask)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(flat, torch.zeros(5, 7))


def test_whiten_hides_no_value_that_is_not_a_number() -> None:
    assert whiten(torch.tensor([1.0, 1.0, NAN]), torch.ones(3, dtype=torch.bool)).isnan().all()
