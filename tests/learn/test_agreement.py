"""The sampler's log-probabilities are the learner's: one forward pass, the same roundings in the same order."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from ragen.episode import Segment
from ragen.learn.batch import Batch, collate_segments
from ragen.learn.policy import Policy
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.hf import HFSampler


class Words:
    """A tokenizer that only has to decode."""

    def decode(self, ids: list[int], **_: Any) -> str:
        return " ".join(map(str, ids))


def episodes(model: Any, dtype: torch.dtype, params: SamplingParams) -> Batch:
    """Three turns of two groups of four, with replies and observations of uneven length, sampled and collated."""
    sampler = HFSampler(model, Words(), end_ids=frozenset({2}), dtype=dtype)
    rng = np.random.default_rng(0)
    ids = [rng_ids for size in (9, 14) for rng_ids in [rng.integers(3, 61, size=size).tolist()] * 4]
    ids, masks = [list(row) for row in ids], [[False] * len(row) for row in ids]
    logprobs = [[0.0] * len(row) for row in ids]
    for turn in range(3):
        requests = [Request(i, tuple(row), 100 * turn + i, 3 + i) for i, row in enumerate(ids)]
        for i, reply in enumerate(sampler.generate(requests, params)):
            shown = rng.integers(3, 61, size=rng.integers(1, 6)).tolist()
            ids[i] += [*reply.token_ids, *shown]
            masks[i] += [True] * len(reply.token_ids) + [False] * len(shown)
            logprobs[i] += [*reply.logprobs, *([0.0] * len(shown))]
    sampler.release()
    segments = [
        Segment(
            token_ids=np.asarray(row),
            mask=np.asarray(mask),
            logprobs=np.asarray(logprob, np.float32),
            turn_ids=np.where(mask, 0, -1).astype(np.int32),
            rewards=np.zeros(len(row), np.float32),
        )
        for row, mask, logprob in zip(ids, masks, logprobs, strict=True)
    ]
    return collate_segments(segments, pad_id=0)


def products_ignore_the_number_of_rows() -> bool:
    """Whether this machine multiplies a row alike, alone and among others (bfloat16)."""
    x, weight = torch.randn(64, 32).bfloat16(), torch.randn(48, 32).bfloat16()
    whole = functional.linear(x, weight)
    return all(torch.equal(functional.linear(x[:n].contiguous(), weight), whole[:n]) for n in (1, 2, 7, 33))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-5)])
def test_packed_learner_and_cached_sampler_agree(
    dtype: torch.dtype, bound: float, temperature: float, make_model: Any
) -> None:
    if dtype is torch.bfloat16 and not products_ignore_the_number_of_rows():
        bound = 0.05
    model = make_model("llama")
    policy = Policy(model, dtype=dtype, pad_id=0, temperature=temperature)
    assert policy.network.native
    batch = episodes(model, dtype, SamplingParams(temperature=temperature))
    for pack, budget in ((True, 10_000), (True, 60), (False, 1)):
        policy.pack = pack
        difference = (policy.logprobs(batch, budget) - batch.behaviour_logprobs)[batch.mask].abs()
        assert float(difference.max()) <= bound


def nucleus(logits: NDArray[np.float64], top_p: float) -> set[int]:
    """The fewest likeliest tokens whose probabilities add up to ``top_p`` or more, one after the other."""
    p = np.exp(logits - logits.max())
    p /= p.sum()
    kept: set[int] = set()
    for token in sorted(range(len(p)), key=lambda i: -p[i]):
        if sum(p[i] for i in kept) >= top_p:
            break
        kept.add(token)
    return kept


def test_b20_truncated_sampling_differs_from_the_learner_by_the_logarithm_of_the_kept_mass(make_model: Any) -> None:
    model = make_model("llama")
    batch = episodes(model, torch.float32, SamplingParams(top_p=0.8))
    learner = Policy(model, dtype=torch.float32, pad_id=0).logprobs(batch, 10_000)
    masses = []
    for row, column in batch.mask.nonzero().tolist():
        with torch.no_grad():
            logits = model(batch.ids[row : row + 1, :column]).logits[0, -1].double()
        kept = nucleus(logits.numpy(), 0.8)
        assert int(batch.ids[row, column]) in kept
        masses.append(float(logits.softmax(-1)[sorted(kept)].sum()))
    difference = (batch.behaviour_logprobs - learner)[batch.mask]
    np.testing.assert_allclose(difference, -np.log(masses), atol=2e-5)
    assert 0.8 <= min(masses) < max(masses) < 1
