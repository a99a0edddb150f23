"""The losses with advantages and the value loss, with numbers worked out by hand."""

import math
from collections.abc import Callable

import pytest
import torch

from ragen.algos.losses import (
    LossTerms,
    cispo,
    explained_variance,
    gmpo,
    gspo,
    imitation_loss,
    pg,
    ppo_clip,
    truncated_ratio,
    value_loss,
)
from ragen.algos.reduce import token_weights


def share(terms: LossTerms, name: str) -> float:
    mean = terms.means[name]
    return float(mean.total / mean.mass)


def surrogate(ratio: float, advantage: float, low: float = 0.2, high: float = 0.28) -> tuple[float, float, float, float]:
    """Loss, gradient by log π, and the two clip marks of one token."""
    new = torch.tensor([[math.log(ratio)]], dtype=torch.float64, requires_grad=True)
    old, weights = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, 1)
    terms = ppo_clip(new, old, torch.tensor([[advantage]], dtype=torch.float64), weights, clip_low=low, clip_high=high)
    terms.loss.backward()
    assert new.grad is not None
    return terms.loss.item(), new.grad.item(), share(terms, "clip_low"), share(terms, "clip_high")


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "low", "high"),
    [
        (1.25, 1.0, -1.25, -1.25, 0, 0),
        (1.30, 1.0, -1.28, 0.0, 0, 1),
        (0.50, 1.0, -0.50, -0.50, 0, 0),  # below the range with A > 0: not clipped
        (0.75, -1.0, 0.80, 0.0, 1, 0),
        (0.85, -1.0, 0.85, 0.85, 0, 0),
        (1.50, -1.0, 1.50, 1.50, 0, 0),  # above the range with A < 0: not clipped
        (1.00, 2.0, -2.0, -2.0, 0, 0),
        (1.00, -3.0, 3.0, 3.0, 0, 0),
        (5.00, 0.0, 0.0, 0.0, 0, 0),
    ],
)
def test_b23_b25_clip_higher(ratio: float, advantage: float, loss: float, gradient: float, low: int, high: int) -> None:
    got = surrogate(ratio, advantage)
    assert got == pytest.approx((loss, gradient, low, high), abs=1e-12)


@pytest.mark.parametrize("ratio", [0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 3.0])
@pytest.mark.parametrize("advantage", [-1.5, 0.7])
def test_b23_equal_bounds_are_the_vanilla_clip(ratio: float, advantage: float) -> None:
    vanilla = -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
    assert surrogate(ratio, advantage, 0.2, 0.2)[0] == pytest.approx(vanilla, abs=1e-12)


def test_clip_fractions_are_weighted_as_the_loss() -> None:
    # trajectory 0: 4 tokens, one clipped high; trajectory 1: 1 token, clipped low
    mask = torch.tensor([[True] * 4, [True, False, False, False]])
    weights = token_weights(mask, torch.arange(2), "trajectory-mean")
    ratio = torch.tensor([[2.0, 1.0, 1.0, 1.0], [0.5, 9.0, 9.0, 9.0]])
    advantages = torch.tensor([[1.0] * 4, [-1.0, 1.0, 1.0, 1.0]])
    terms = ppo_clip(ratio.log(), torch.zeros(2, 4), advantages, weights, clip_low=0.2, clip_high=0.2)
    assert share(terms, "clip_high") == pytest.approx(1 / 8)
    assert share(terms, "clip_low") == pytest.approx(1 / 2)
    half = ppo_clip(ratio.log(), torch.zeros(2, 4), advantages, 0.5 * weights, clip_low=0.2, clip_high=0.2)
    assert share(half, "clip_low") == pytest.approx(1 / 2)  # a share, also where the weights do not sum to 1


def test_an_infinite_ratio_with_advantage_zero_is_not_nan() -> None:
    new = torch.tensor([[500.0]], requires_grad=True)
    terms = ppo_clip(new, torch.zeros(1, 1), torch.zeros(1, 1), torch.ones(1, 1), clip_low=0.2, clip_high=0.2)
    terms.loss.backward()
    assert terms.loss.item() == 0.0
    assert new.grad is not None
    assert new.grad.item() == 0.0


def test_b3_flat_groups_have_loss_and_gradient_zero() -> None:
    new = torch.tensor([[0.3, -0.2]], requires_grad=True)
    terms = ppo_clip(new, torch.zeros(1, 2), torch.zeros(1, 2), torch.full((1, 2), 0.5), clip_low=0.2, clip_high=0.2)
    terms.loss.backward()
    assert terms.loss.item() == 0.0
    assert torch.equal(new.grad, torch.zeros(1, 2))


def test_b6_five_of_thirty_tokens_masked_leave_the_loss_at_one() -> None:
    mask = torch.ones(3, 10, dtype=torch.bool)
    mask[2, 5:] = False
    weights = token_weights(mask, torch.arange(3), "token-mean")
    terms = ppo_clip(torch.zeros(3, 10), torch.zeros(3, 10), -torch.ones(3, 10), weights, clip_low=0.2, clip_high=0.2)
    assert terms.loss.item() == pytest.approx(1.0, abs=1e-6)


def test_d6_a_micro_batch_without_a_trained_token_is_zero() -> None:
    new = torch.full((2, 3), math.nan, requires_grad=True)
    nothing = torch.full((2, 3), math.nan)
    terms = ppo_clip(new, nothing, nothing, torch.zeros(2, 3), clip_low=0.2, clip_high=0.2)
    (terms.loss + value_loss(new, nothing, nothing, torch.zeros(2, 3), clip=0.2)).backward()
    assert terms.loss.item() == 0.0
    assert torch.equal(new.grad, torch.zeros(2, 3))


def one_token(rule: Callable[..., LossTerms], ratio: float, advantage: float, **more: float) -> tuple[LossTerms, float]:
    """The terms of one token of old log-probability −1, and the gradient by log π."""
    old = torch.full((1, 1), -1.0, dtype=torch.float64)
    new = (old + math.log(ratio)).requires_grad_()
    terms = rule(new, old, torch.tensor([[advantage]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64), **more)
    terms.loss.backward()
    assert new.grad is not None
    return terms, new.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "capped"),
    [
        (2.5, -1.0, 2.5, 2.5, 0),  # below the cap of 3: PPO's unbounded side
        (4.0, -1.0, 3.0, 0.0, 1),
        (4.0, -2.0, 6.0, 0.0, 1),
        (4.0, 1.0, -1.2, 0.0, 0),  # A > 0: the upper clip's business
        (0.5, -1.0, 0.8, 0.0, 0),
    ],
)
def test_dual_clip_bounds_what_a_bad_token_of_large_ratio_costs(
    ratio: float, advantage: float, loss: float, gradient: float, capped: int
) -> None:
    terms, found = one_token(ppo_clip, ratio, advantage, clip_low=0.2, clip_high=0.2, dual_clip=3.0)
    assert (terms.loss.item(), found, share(terms, "clip_dual")) == pytest.approx((loss, gradient, capped), abs=1e-12)


def test_plain_policy_gradient_by_hand() -> None:
    new = torch.tensor([[-1.0, -2.0, math.nan]], requires_grad=True)
    terms = pg(new, torch.tensor([[2.0, -1.0, math.nan]]), torch.tensor([[0.5, 0.25, 0.0]]))
    terms.loss.backward()
    assert terms.loss.item() == pytest.approx(-(0.5 * 2 * -1 + 0.25 * -1 * -2))
    assert new.grad is not None
    assert new.grad.tolist() == [[-1.0, 0.25, 0.0]]


@pytest.mark.parametrize(
    ("ratio", "advantage", "gradient", "capped"),
    [
        (1.5, 2.0, -3.0, 0),  # −ρ A
        (3.0, 1.0, -2.0, 1),  # held at 1 + clip_high = 2, and still a gradient
        (3.0, -1.0, 2.0, 1),
        (0.1, -1.0, 0.1, 0),  # no lower bound
    ],
)
def test_cispo_caps_the_ratio_and_keeps_the_gradient(ratio: float, advantage: float, gradient: float, capped: int) -> None:
    terms, found = one_token(cispo, ratio, advantage, clip_high=1.0)
    assert found == pytest.approx(gradient, abs=1e-12)
    assert terms.loss.item() == pytest.approx(gradient * (-1 + math.log(ratio)), abs=1e-12)  # −w A log π
    assert share(terms, "clip_high") == capped


# two units of 2 and 3 tokens; ratios of the first: 1.2 and 1.8, geometric mean √2.16
LOGS = torch.tensor([[1.2, 1.8, 0.5, 0.5, 4.0]], dtype=torch.float64).log()
UNITS = torch.tensor([[7, 7, 2, 2, 2]])
UNIT_WEIGHTS = torch.tensor([[1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6]], dtype=torch.float64)


def by_units(rule: Callable[..., LossTerms], advantages: list[float], **bounds: float) -> tuple[LossTerms, list[float]]:
    new = LOGS.clone().requires_grad_()
    advantage = torch.tensor([advantages], dtype=torch.float64)
    terms = rule(new, torch.zeros_like(LOGS), advantage, UNIT_WEIGHTS, UNITS, **bounds)
    terms.loss.backward()
    assert new.grad is not None
    return terms, new.grad[0].tolist()


def test_gspo_by_hand() -> None:
    first = math.sqrt(2.16)  # 1.4697; the second unit's ratio is exactly 1
    terms, gradient = by_units(gspo, [1.0, 1.0, -1.0, -1.0, -1.0], clip_low=0.2, clip_high=0.5)
    assert terms.loss.item() == pytest.approx(-0.5 * first + 0.5)
    assert gradient == pytest.approx([-first / 4, -first / 4, 1 / 6, 1 / 6, 1 / 6])  # J = ½ s A: ∂/∂log π_t = ½ s A / |u|
    clipped, gradient = by_units(gspo, [1.0, 1.0, -1.0, -1.0, -1.0], clip_low=0.2, clip_high=0.4)
    assert clipped.loss.item() == pytest.approx(-0.5 * 1.4 + 0.5)
    assert gradient == pytest.approx([0, 0, 1 / 6, 1 / 6, 1 / 6])
    assert (share(clipped, "clip_high"), share(clipped, "clip_low")) == pytest.approx((0.5, 0.0))


def test_gspo_is_the_gradient_through_the_unit_mean_where_advantages_are_equal() -> None:
    """The source's eq. 5, differentiated as written: s = exp(mean log ρ), no token form."""
    new = LOGS.clone().requires_grad_()
    mean = torch.stack([new[0, :2].mean(), new[0, 2:].mean()])
    (-(mean.exp() * torch.tensor([0.7, -0.3], dtype=torch.float64)).mean()).backward()
    assert new.grad is not None
    _, gradient = by_units(gspo, [0.7, 0.7, -0.3, -0.3, -0.3], clip_low=0.9, clip_high=9.0)
    assert gradient == pytest.approx(new.grad[0].tolist())


def test_gmpo_by_hand() -> None:
    # bounds e^±0.4 = 1.4918 and 0.6703: A > 0 holds 1.8 down, A < 0 holds the two 0.5 up; 4.0 is left alone where A < 0
    high, low = math.exp(0.4), math.exp(-0.4)
    first, second = math.sqrt(1.2 * high), (low * low * 4.0) ** (1 / 3)
    terms, gradient = by_units(gmpo, [1.0, 1.0, -2.0, -2.0, -2.0], clip_low=0.4, clip_high=0.4)
    assert terms.loss.item() == pytest.approx(-0.5 * first + 0.5 * 2 * second)
    assert gradient == pytest.approx([-first / 4, 0, 0, 0, 2 * second / 6])
    assert (share(terms, "clip_high"), share(terms, "clip_low")) == pytest.approx((1 / 4, 1 / 3))
    # the other way round nothing but 4.0 is held: a bound binds only where it makes the estimate more cautious
    first, second = math.sqrt(1.2 * 1.8), (0.5 * 0.5 * high) ** (1 / 3)
    terms, gradient = by_units(gmpo, [-1.0, -1.0, 2.0, 2.0, 2.0], clip_low=0.4, clip_high=0.4)
    assert terms.loss.item() == pytest.approx(0.5 * first - 0.5 * 2 * second)
    assert gradient == pytest.approx([first / 4, first / 4, -second / 3, -second / 3, 0])


def test_units_count_only_tokens_with_a_weight() -> None:
    new = torch.tensor([[math.log(2.0), math.nan, 0.0]], requires_grad=True)
    weights = torch.tensor([[0.5, 0.0, 0.5]])
    terms = gspo(new, torch.zeros(1, 3), torch.ones(1, 3), weights, torch.tensor([[0, 0, 1]]), clip_low=0.9, clip_high=9.0)
    assert terms.loss.item() == pytest.approx(-(0.5 * 2.0 + 0.5 * 1.0))


def test_imitation_by_hand() -> None:
    p = torch.tensor([[0.5, 0.9, 0.1, math.nan]])
    new = p.log().requires_grad_()
    weights = torch.tensor([[0.25, 0.25, 0.5, 0.0]])
    plain = imitation_loss(new, weights, "uniform")
    assert plain.item() == pytest.approx(-(0.25 * math.log(0.5) + 0.25 * math.log(0.9) + 0.5 * math.log(0.1)))
    phi = imitation_loss(new, weights, "phi")
    phi.backward()
    assert phi.item() == pytest.approx(-(0.0625 * math.log(0.5) + 0.0225 * math.log(0.9) + 0.045 * math.log(0.1)))
    assert new.grad is not None
    assert new.grad[0].tolist() == pytest.approx([-0.0625, -0.0225, -0.045, 0.0])  # φ passes no gradient of its own


def test_truncated_ratio_by_hand() -> None:
    old = torch.tensor([[-1.0, -1.0, -1.0, math.nan]], requires_grad=True)
    sampler = torch.tensor([[-1.0, -1.0 + math.log(2), -1.0 - math.log(4), math.inf]])
    factor = truncated_ratio(old, sampler, torch.tensor([[True, True, True, False]]), 3.0)
    assert factor[0].tolist() == pytest.approx([1.0, 0.5, 3.0, 1.0])
    assert not factor.requires_grad


@pytest.mark.parametrize(
    ("value", "clip", "loss", "gradient"),
    [
        (1.0, None, 0.5 * 1.0, -1.0),
        (0.1, 0.2, 0.5 * 1.9**2, -1.9),  # inside the range
        (1.0, 0.2, 0.5 * 1.8**2, 0.0),  # V_clip = 0.2 is further from the target 2: no gradient
        (-1.0, 0.2, 0.5 * 9.0, -3.0),  # V_clip = −0.2 is nearer: the unclipped error counts
    ],
)
def test_value_loss_by_hand(value: float, clip: float | None, loss: float, gradient: float) -> None:
    new = torch.tensor([[value]], dtype=torch.float64, requires_grad=True)
    old, target = torch.zeros(1, 1, dtype=torch.float64), torch.full((1, 1), 2.0, dtype=torch.float64)
    got = value_loss(new, old, target, torch.ones(1, 1), clip=clip)
    got.backward()
    assert new.grad is not None
    assert (got.item(), new.grad.item()) == pytest.approx((loss, gradient), abs=1e-12)


def test_b11_value_loss_ignores_what_stands_off_the_mask() -> None:
    weights = torch.tensor([[0.5, 0.0, 0.5]])
    results = []
    for rest in (0.0, math.nan, 1e6):
        values = torch.tensor([[1.0, rest, 2.0]], requires_grad=True)
        filler = torch.tensor([[0.0, rest, 1.0]])
        loss = value_loss(values, filler, filler, weights, clip=0.2)
        loss.backward()
        results.append((loss.detach(), values.grad))
    for loss, gradient in results[1:]:
        assert torch.equal(loss, results[0][0])
        assert torch.equal(gradient, results[0][1])


def test_explained_variance_by_hand() -> None:
    mask = torch.tensor([[True, True, True, False]])
    targets = torch.tensor([[0.0, 1.0, 2.0, math.nan]])
    assert explained_variance(targets, targets, mask).item() == 1.0
    assert explained_variance(torch.tensor([[5.0, 5.0, 5.0, math.nan]]), targets, mask).item() == pytest.approx(
        0.0, abs=1e-6
    )
    assert explained_variance(targets + 3, targets, mask).item() == pytest.approx(1.0)  # a constant bias is not variance
    assert explained_variance(-targets, targets, mask).item() == pytest.approx(-3.0)  # residual 2y: 1 − 4
    assert explained_variance(targets, torch.ones(1, 4), mask).item() == 0.0
    assert explained_variance(targets, targets, torch.zeros(1, 4, dtype=torch.bool)).item() == 0.0


@pytest.mark.parametrize("clip", [None, 0.2])
def test_value_loss_passes_gradient_to_the_new_values_only(clip: float | None) -> None:
    new, old, target = (torch.tensor([[x]], requires_grad=True) for x in (1.0, 0.0, 2.0))
    value_loss(new, old, target, torch.ones(1, 1), clip=clip).backward()
    assert new.grad is not None
    assert old.grad is None
    assert target.grad is None
