"""The sampler's log-probabilities are the learner's: one forward pass, the same roundings in the same order."""

from typing import Any

import numpy as np
import pytest
import torch
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


def episodes(model: Any, dtype: torch.dtype, temperature: float) -> Batch:
    """Three turns of two groups of four, with replies and observations of uneven length, sampled and collated."""
    sampler = HFSampler(model, Words(), end_ids=frozenset({2}), dtype=dtype)
    rng = np.random.default_rng(0)
    ids = [rng_ids for size in (9, 14) for rng_ids in [rng.integers(3, 61, size=size).tolist()] * 4]
    ids, masks = [list(row) for row in ids], [[False] * len(row) for row in ids]
    logprobs = [[0.0] * len(row) for row in ids]
    for turn in range(3):
        requests = [Request(i, tuple(row), 100 * turn + i, 3 + i) for i, row in enumerate(ids)]
        for i, reply in enumerate(sampler.generate(requests, SamplingParams(temperature=temperature))):
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
    batch = episodes(model, dtype, temperature)
    for pack, budget in ((True, 10_000), (True, 60), (False, 1)):
        policy.pack = pack
        difference = (policy.logprobs(batch, budget) - batch.behaviour_logprobs)[batch.mask].abs()
        assert float(difference.max()) <= bound
