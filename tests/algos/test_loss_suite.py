"""Properties every registered policy loss with advantages has (M1, M2, M5), and the exact policy gradient (M10)."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.algos.advantages import grpo
from ragen.algos.losses import LossTerms, losses
from ragen.algos.reduce import token_weights

NAMES = [name for name in losses if "advantages" in losses.get(name).needs]
RATIO = [name for name in NAMES if "old_logprobs" in losses.get(name).needs]
OBJECTIVES = ["ppo_clip", "gspo", "gmpo"]  # the value at ratio 1 is the mean advantage
SETTINGS = {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 1.5}
MODES = ("token-mean", "trajectory-mean", "trajectory-sum")
TRAJECTORY = torch.tensor([0, 1, 1, 2, 3])
seeds = st.integers(0, 2**32 - 1)


def apply(name: str, new: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, units: Tensor) -> LossTerms:
    arrays = {"logprobs": new, "old_logprobs": old, "advantages": advantages, "weights": weights}
    return losses.get(name)(arrays | {"units": units[:, None].expand(new.shape)}, SETTINGS)


def run(
    name: str, new: Tensor, old: Tensor, advantages: Tensor, weights: Tensor, units: Tensor = TRAJECTORY
) -> tuple[LossTerms, Tensor]:
    leaf = new.clone().requires_grad_()
    terms = apply(name, leaf, old, advantages, weights, units)
    terms.loss.backward()
    assert leaf.grad is not None
    return terms, leaf.grad


def sample(seed: int, mode: str = "trajectory-mean") -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(5, 6, generator=generator) < 0.6
    old = torch.randn(5, 6, generator=generator) - 2
    new = old + 0.3 * torch.randn(5, 6, generator=generator)
    advantages = torch.randn(5, 6, generator=generator)
    return mask, new, old, advantages, token_weights(mask, TRAJECTORY, mode)


def means(terms: LossTerms) -> dict[str, float]:
    return {name: float(mean.total) for name, mean in terms.means.items()}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(seed=seeds, filler=st.sampled_from([math.nan, math.inf, 1e6, -1e6]))
def test_b11_d1_off_mask_values_change_neither_loss_nor_gradient(name: str, seed: int, filler: float) -> None:
    mask, new, old, advantages, weights = sample(seed)
    plain, gradient = run(name, new, old, advantages, weights)
    dirty, dirty_gradient = run(name, *(torch.where(mask, x, filler) for x in (new, old, advantages)), weights)
    assert torch.equal(dirty.loss, plain.loss)
    assert means(dirty) == means(plain)
    assert torch.equal(dirty_gradient, gradient)
    assert torch.equal(gradient[~mask], torch.zeros(int((~mask).sum())))


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(seed=seeds, mode=st.sampled_from(MODES), order=st.permutations(range(5)), padding=st.integers(0, 3))
def test_m2_row_order_padding_and_split_change_nothing(
    name: str, seed: int, mode: str, order: list[int], padding: int
) -> None:
    _, new, old, advantages, weights = sample(seed, mode)
    plain, gradient = run(name, new, old, advantages, weights)
    moved = [torch.nn.functional.pad(x[order], (0, padding), value=3.0) for x in (new, old, advantages)]
    weighted = torch.nn.functional.pad(weights[order], (0, padding))
    mixed, mixed_gradient = run(name, *moved, weighted, TRAJECTORY[order])
    torch.testing.assert_close(mixed.loss, plain.loss, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(mixed_gradient[:, :6], gradient[order], rtol=1e-5, atol=1e-7)
    parts = (slice(0, 1), slice(1, 5)) if "units" in losses.get(name).needs else (slice(0, 2), slice(2, 5))
    halves = [run(name, *(x[part] for x in (new, old, advantages, weights, TRAJECTORY))) for part in parts]
    torch.testing.assert_close(sum(terms.loss for terms, _ in halves), plain.loss, rtol=1e-5, atol=1e-6)
    for key, value in means(plain).items():
        assert sum(means(terms)[key] for terms, _ in halves) == pytest.approx(value, rel=1e-5, abs=1e-6)
    torch.testing.assert_close(torch.cat([g for _, g in halves]), gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=30)
@given(seed=seeds)
def test_m5_at_ratio_one_it_is_the_policy_gradient_and_nothing_is_clipped(name: str, seed: int) -> None:
    mask, _, old, advantages, weights = sample(seed)
    terms, gradient = run(name, old, old, advantages, weights)
    torch.testing.assert_close(gradient, -weights * advantages, rtol=1e-5, atol=1e-7)
    assert all(total == 0 for total in means(terms).values())
    if name in OBJECTIVES:
        assert terms.loss.item() == pytest.approx(-float((weights * advantages)[mask].sum()), abs=1e-5)


@pytest.mark.parametrize("name", RATIO)
def test_old_log_probabilities_and_advantages_get_no_gradient(name: str) -> None:
    _, new, old, advantages, weights = sample(0)
    frozen = old.clone().requires_grad_()
    apply(name, new.requires_grad_(), frozen, advantages, weights, TRAJECTORY).loss.backward()
    assert frozen.grad is None


@pytest.mark.parametrize("name", NAMES)
def test_nothing_to_train_on_is_zero(name: str) -> None:
    nothing = torch.full((5, 3), math.nan)
    terms, gradient = run(name, nothing, nothing, nothing, torch.zeros(5, 3))
    assert terms.loss.item() == 0.0
    assert torch.equal(gradient, torch.zeros(5, 3))
    assert set(means(terms).values()) <= {0.0}


# M10: a bandit of three arms and a softmax policy; every outcome is enumerated, so that expectations are exact.
LOGITS = torch.tensor([0.3, -0.4, 0.9], dtype=torch.float64)
PAYOFF = torch.tensor([0.15, 1.0, -0.5], dtype=torch.float64)


def exact_gradient() -> Tensor:
    """∂J/∂θ_a = π_a (r_a − J), J = Σ π_a r_a."""
    policy = LOGITS.softmax(0)
    return policy * (PAYOFF - policy @ PAYOFF)


@pytest.mark.parametrize("name", NAMES)
def test_m10_expected_loss_gradient_is_the_exact_policy_gradient(name: str) -> None:
    logits = LOGITS.clone().requires_grad_()
    new = logits.log_softmax(0)[:, None]  # one row an arm, weighted by its probability
    weights = LOGITS.softmax(0)[:, None]
    apply(name, new, new.detach(), PAYOFF[:, None], weights, torch.arange(3)).loss.backward()
    torch.testing.assert_close(logits.grad, -exact_gradient())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_m10_with_a_group_baseline_it_is_the_exact_one_times_g_minus_1_over_g(name: str, size: int) -> None:
    # the mean of the group contains the member itself, which takes 1/G of the gradient away
    policy = LOGITS.softmax(0)
    expected = torch.zeros(3, dtype=torch.float64)
    index, group = torch.arange(size), torch.zeros(size, dtype=torch.int64)
    mask = torch.ones(size, 1, dtype=torch.bool)
    weights = token_weights(mask, index, "trajectory-mean").double()
    for arms in itertools.product(range(3), repeat=size):
        chosen = list(arms)
        advantages = grpo(PAYOFF[chosen][:, None], mask, index, group, normalize_std=False).advantages.double()
        logits = LOGITS.clone().requires_grad_()
        new = logits.log_softmax(0)[chosen][:, None]
        apply(name, new, new.detach(), advantages, weights, index).loss.backward()
        assert logits.grad is not None
        expected += policy[chosen].prod() * logits.grad
    torch.testing.assert_close(expected, -exact_gradient() * (size - 1) / size, rtol=1e-5, atol=1e-7)
