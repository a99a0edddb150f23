"""Drawing tokens: exact inverse CDF, truncation, and what it never does."""

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ragen.samplers.base import SamplingParams
from ragen.samplers.draw import Drawer, StopFinder

PROBABILITIES = [0.5, 0.25, 0.125, 0.125]


def draw(logits, uniforms, **params):
    return Drawer()(
        torch.as_tensor(logits, dtype=torch.float32), torch.tensor(uniforms, dtype=torch.float32), SamplingParams(**params)
    )


@pytest.mark.parametrize(
    ("uniform", "token"), [(0.0, 0), (0.4999, 0), (0.5, 1), (0.7499, 1), (0.75, 2), (0.87, 2), (0.876, 3), (0.9999999, 3)]
)
def test_the_token_is_the_first_whose_cumulative_probability_exceeds_the_number(uniform, token):
    result = draw(np.log([PROBABILITIES]), [uniform])
    assert result.ids.tolist() == [token]
    assert result.logprobs[0].item() == pytest.approx(np.log(PROBABILITIES[token]), abs=1e-6)
    assert result.entropies[0].item() == pytest.approx(1.75 * np.log(2), abs=1e-6)
    assert result.bad == ()


@pytest.mark.parametrize("vocabulary", [3, 255, 256, 257, 1000, 49152])
def test_a_large_vocabulary_gives_the_indices_of_a_float64_reference(vocabulary):
    rng = np.random.default_rng(vocabulary)
    logits = rng.normal(size=(40, vocabulary)).astype(np.float32) * 3
    uniforms = rng.random(40).astype(np.float32)
    result = draw(logits, uniforms.tolist())
    p = np.exp(logits.astype(np.float64))
    p /= p.sum(-1, keepdims=True)
    cdf = p.cumsum(-1)
    ids = result.ids.numpy()
    before = np.where(ids > 0, cdf[np.arange(40), ids - 1], 0.0)
    # rounding of float32 sums may move a border by a few 1e-7
    assert np.all(before <= uniforms + 1e-6)
    assert np.all(uniforms <= cdf[np.arange(40), ids] + 1e-6)
    np.testing.assert_allclose(result.logprobs, np.log(p[np.arange(40), ids]), atol=2e-5)
    np.testing.assert_allclose(result.entropies, -(p * np.log(p)).sum(-1), atol=2e-4)


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.just(-np.inf), st.floats(-200, 50, width=32)), min_size=1, max_size=600), st.floats(0, 1, width=32)
)
@example([-103.0, 0.0, 0.0], 0.0)  # its float32 mass is the smallest number there is: half of it is 0
def test_a_token_of_probability_zero_is_never_drawn(values, uniform):
    if not np.isfinite(values).any():
        assert draw([values], [uniform]).bad == (0,)
        return
    result = draw([values], [uniform])
    masses = (torch.tensor(values, dtype=torch.float64) - max(values)).exp()
    assert masses[result.ids[0]] > 1e-46  # smaller ones are 0 in float32
    assert torch.isfinite(result.logprobs[0])
    assert torch.isfinite(result.entropies[0])


def test_the_largest_uniform_number_skips_a_tail_of_zeros():
    logits = torch.full((1, 5000), -torch.inf)
    logits[0, :3] = 0.0
    assert draw(logits, [float(np.nextafter(np.float32(1), np.float32(0)))]).ids.tolist() == [2]
    assert draw(logits, [1.0]).ids.tolist() == [2]  # a float64 number may round up to 1


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 9}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.4}, [0]),
        ({"top_p": 0.41}, [0, 1]),
        ({"top_p": 0.75}, [0, 1, 2]),
        ({"min_p": 0.5}, [0, 1]),
        ({"min_p": 0.2}, [0, 1, 2, 3]),
        ({"top_k": 3, "top_p": 0.75}, [0, 1]),  # after top-k the masses are .4/.85 and .7/.85
        ({"top_p": 1e-9}, [0]),
    ],
)
def test_truncated_sampling_has_the_renormalised_distribution(params, kept):
    p = np.array([0.4, 0.3, 0.15, 0.1, 0.05])
    order = [3, 0, 4, 1, 2]  # ids in another order than probabilities
    logits = np.log(p)[np.argsort(order)]
    n = 40_000
    uniforms = (np.arange(n) + 0.5) / n
    result = draw(np.tile(logits, (n, 1)), uniforms.tolist(), **params)
    counts = np.bincount(result.ids.numpy(), minlength=5)[order] / n
    want = np.where(np.isin(np.arange(5), kept), p, 0) / p[kept].sum()
    np.testing.assert_allclose(counts, want, atol=2 / n)  # evenly spaced numbers: exact up to the borders
    np.testing.assert_allclose(result.logprobs[:5], np.log(want[np.argsort(order)][result.ids[:5]]), atol=1e-5)
    np.testing.assert_allclose(result.entropies[0], -(p * np.log(p)).sum(), atol=1e-5)


def test_temperature_sharpens_and_zero_is_greedy():
    logits = np.log([PROBABILITIES])
    assert draw(logits, [0.79], temperature=0.5).ids.tolist() == [1]  # squares: 16/22, 4/22, 1/22, 1/22
    result = draw(logits, [0.999], temperature=0)
    assert (result.ids.tolist(), result.logprobs.tolist()) == ([0], [0.0])


def test_d3_rows_with_nan_or_infinite_logits_are_named():
    logits = torch.zeros(40, 300)
    logits[3, 17], logits[20, 0], logits[39] = torch.nan, torch.inf, -torch.inf
    assert draw(logits, [0.5] * 40).bad == (3, 20, 39)


def test_buffers_do_not_leak_between_vocabularies():
    drawer = Drawer()
    for vocabulary in (700, 5, 700):
        got = drawer(torch.zeros(2, vocabulary), torch.tensor([0.0, 0.999]), SamplingParams())
        assert got.ids.tolist() == [0, vocabulary - 1]
        assert got.entropies.tolist() == pytest.approx([np.log(vocabulary)] * 2, abs=1e-4)


def test_stop_strings_are_found_across_tokens_and_characters(tokenizer):
    text = "I go</answer> and é"
    ids = tokenizer.encode(text, add_special_tokens=False)
    for stop in ("</answer>", "go<", "é", "d é"):
        finder = StopFinder(tokenizer, (stop,))
        first = next(n for n in range(1, len(ids) + 1) if finder.found(ids[:n]))
        assert stop in tokenizer.decode(ids[:first])
        assert stop not in tokenizer.decode(ids[: first - 1])


@pytest.mark.parametrize("stop", ["stop ", " me", "p m"])
def test_stop_strings_are_found_where_a_tokenizer_drops_the_blank_that_begins_a_text(stop):
    words = ["<unk>", "▁you", "▁stop", "▁me", "▁", "now"]
    model = tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    raw = tokenizers.Tokenizer(model)
    raw.decoder = tokenizers.decoders.Metaspace()
    pieces = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>")
    ids = [1, 2, 3, 5]
    assert (pieces.decode([3]), pieces.decode(ids)) == ("me", "you stop menow")
    finder = StopFinder(pieces, (stop,))
    assert [finder.found(ids[:n]) for n in (1, 2, 3)] == [False, False, True]
