"""Log-probabilities and entropies from hidden states, against autograd on the full table."""

import pytest
import torch
from torch import Tensor

from ragen.learn import head
from ragen.learn.head import token_logprobs


def dense(hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    table = torch.log_softmax(torch.nn.functional.linear(hidden, weight, bias) / temperature, -1)
    return table.gather(1, targets[:, None])[:, 0], -(table.exp() * table).sum(-1)


@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_values_and_gradients_equal_the_dense_ones_for_any_chunking(
    rows: int, with_bias: bool, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "CHUNK_ELEMENTS", rows * 17)
    monkeypatch.setattr(head, "BLOCK_ELEMENTS", 2 * rows * 17)
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((150, 5), (17, 5), (17,))]
    targets = torch.randint(17, (150,), generator=generator)
    up = torch.randn(2, 150, generator=generator)
    wanted_inputs = [x.clone().requires_grad_() for x in inputs]
    got_inputs = [x.float().requires_grad_() for x in inputs]
    if not with_bias:
        wanted_inputs, got_inputs = wanted_inputs[:2], got_inputs[:2]
    wanted = dense(*(wanted_inputs + [None] * (not with_bias)), targets, temperature)
    got = token_logprobs(*(got_inputs + [None] * (not with_bias)), targets, temperature=temperature)
    torch.autograd.backward(wanted, list(up.double()))
    torch.autograd.backward(got, list(up))
    for a, b in zip(got, wanted, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)
    for a, b in zip(got_inputs, wanted_inputs, strict=True):
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=1e-4, atol=1e-5)


def test_uniform_logits_give_minus_log_v_and_entropy_log_v_by_hand() -> None:
    logprobs, entropies = token_logprobs(torch.ones(2, 3), torch.zeros(8, 3), None, torch.tensor([0, 7]), temperature=1.0)
    torch.testing.assert_close(logprobs, torch.full((2,), -2.0794415))
    torch.testing.assert_close(entropies, torch.full((2,), 2.0794415))


def test_a_masked_logit_of_minus_infinity_gives_finite_entropy_and_gradients() -> None:
    hidden = torch.ones(1, 1, requires_grad=True)
    bias = torch.tensor([0.0, 0.0, float("-inf")])
    logprobs, entropies = token_logprobs(
        hidden, torch.zeros(3, 1, requires_grad=True), bias, torch.tensor([1]), temperature=1.0
    )
    (logprobs + entropies).sum().backward()
    assert float(entropies.detach()) == pytest.approx(0.6931472)
    assert bool(torch.isfinite(hidden.grad).all())


def test_nan_hidden_states_give_nan_never_a_plausible_number() -> None:
    logprobs, _ = token_logprobs(
        torch.full((1, 2), float("nan")), torch.ones(4, 2), None, torch.tensor([0]), temperature=1.0
    )
    assert bool(torch.isnan(logprobs).all())


def test_bfloat16_products_stay_within_their_rounding() -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(6, 16, generator=generator), torch.randn(40, 16, generator=generator)
    targets = torch.arange(6)
    exact, _ = dense(hidden, weight, None, targets, 1.0)
    got, _ = token_logprobs(hidden, weight.bfloat16(), None, targets, temperature=1.0)
    assert got.dtype is torch.float32
    torch.testing.assert_close(got, exact, rtol=0.03, atol=0.05)


def test_a_large_vocabulary_still_makes_products_of_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head, "BLOCK_ELEMENTS", 17 * 63)  # fewer than 64 rows of 17 logits
    sizes = [product.shape[0] for _, product in head._Logits(torch.ones(128, 5), torch.ones(17, 5), None, 1.0).blocks()]
    assert sizes == [64, 64]
