"""Estimators of the divergence from a reference policy."""

import math

import pytest
import torch

from ragen.algos.kl import kl_estimate

POLICY = torch.tensor([0.70, 0.10, 0.10, 0.05, 0.05], dtype=torch.float64)
REFERENCE = torch.tensor([0.10, 0.15, 0.25, 0.20, 0.30], dtype=torch.float64)


def test_each_estimator_by_hand() -> None:
    new, ref = torch.tensor([math.log(0.5)], dtype=torch.float64), torch.tensor([math.log(0.25)], dtype=torch.float64)
    assert kl_estimate(new, ref, "k1").item() == pytest.approx(math.log(2))
    assert kl_estimate(new, ref, "k2").item() == pytest.approx(math.log(2) ** 2 / 2)
    assert kl_estimate(new, ref, "k3").item() == pytest.approx(0.5 - 1 + math.log(2))


def test_b28_k1_and_k3_are_unbiased_and_k2_is_half_the_second_moment() -> None:
    n = 100_000
    tokens = torch.multinomial(POLICY, n, replacement=True, generator=torch.Generator().manual_seed(1))
    new, ref = POLICY.log()[tokens], REFERENCE.log()[tokens]
    difference = (POLICY / REFERENCE).log()
    exact = float((POLICY * difference).sum())
    second = float((POLICY * difference.square()).sum()) / 2
    assert abs(exact - second) > 0.02  # or the test could not tell k2 from the KL
    for name, target in (("k1", exact), ("k3", exact), ("k2", second)):
        sample = kl_estimate(new, ref, name)  # type: ignore[arg-type]
        assert abs(float(sample.mean()) - target) < 3 * float(sample.std()) / math.sqrt(n), name


def test_b28_expectations_are_exact_when_enumerated() -> None:
    exact = float((POLICY * (POLICY / REFERENCE).log()).sum())
    for name in ("k1", "k3"):
        assert float((POLICY * kl_estimate(POLICY.log(), REFERENCE.log(), name)).sum()) == pytest.approx(exact, abs=1e-12)


def test_as_losses_k1_has_no_expected_gradient_and_k2_has_that_of_the_kl() -> None:
    logits = POLICY.log().requires_grad_()
    (exact,) = torch.autograd.grad((logits.softmax(0) * (logits.log_softmax(0) - REFERENCE.log())).sum(), logits)
    assert float(exact.abs().max()) > 0.01
    for name, expected in (("k1", torch.zeros(5, dtype=torch.float64)), ("k2", exact)):
        per_token = kl_estimate(logits.log_softmax(0), REFERENCE.log(), name)  # type: ignore[arg-type]
        (gradient,) = torch.autograd.grad((POLICY * per_token).sum(), logits)
        torch.testing.assert_close(gradient, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("difference", [0.0, 1e-7, -1e-5, 3e-3, 0.00999, -0.01001, 0.5, -3.0, 15.0])
def test_k3_in_float32_keeps_its_precision_near_zero(difference: float) -> None:
    wide = torch.tensor([difference], dtype=torch.float32).double().item()  # what float32 can hold
    expected = math.expm1(-wide) + wide if abs(wide) > 0.1 else sum((-wide) ** i / math.factorial(i) for i in range(2, 12))
    got = kl_estimate(torch.tensor([difference]), torch.zeros(1), "k3").item()
    assert got == pytest.approx(expected, rel=1e-4, abs=1e-30)
    assert got >= 0


def test_k3_gradient_is_right_on_both_sides_of_the_series() -> None:
    new = torch.tensor([0.005, 0.5, -0.5], dtype=torch.float64, requires_grad=True)
    kl_estimate(new, torch.zeros(3, dtype=torch.float64), "k3").sum().backward()
    torch.testing.assert_close(new.grad, 1 - (-new.detach()).exp(), rtol=1e-5, atol=0)


def test_k3_stays_finite_for_a_reference_far_away() -> None:
    new = torch.tensor([-500.0, 500.0], requires_grad=True)
    estimate = kl_estimate(new, torch.zeros(2), "k3")
    estimate.sum().backward()
    assert torch.isfinite(estimate).all()
    assert torch.isfinite(new.grad).all()


@pytest.mark.parametrize("name", ["k1", "k2", "k3"])
def test_b11_off_the_mask_nothing_is_looked_at(name: str) -> None:
    mask = torch.tensor([True, False, False])
    results = []
    for rest in (0.0, math.nan):
        new = torch.tensor([-1.0, rest, 1e6], requires_grad=True)
        estimate = kl_estimate(new, torch.tensor([-1.5, rest, -1e6]), name, mask)  # type: ignore[arg-type]
        estimate.sum().backward()
        results.append((estimate.detach(), new.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    assert results[1][0][1:].tolist() == [0.0, 0.0]
    assert results[1][1][1:].tolist() == [0.0, 0.0]


def test_identical_policies_have_no_divergence() -> None:
    logprobs = torch.tensor([-0.1, -3.0, -20.0])
    for name in ("k1", "k2", "k3"):
        assert kl_estimate(logprobs, logprobs.clone(), name).tolist() == [0.0, 0.0, 0.0]  # type: ignore[arg-type]


def test_unknown_estimator_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="k1, k2 or k3"):
        kl_estimate(torch.zeros(1), torch.zeros(1), "k4")  # type: ignore[arg-type]
