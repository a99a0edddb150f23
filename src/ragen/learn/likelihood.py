"""Log-likelihoods of replies under prompts they were not sampled from (teacher forcing), for diagnostics."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ragen.episode import Segment
from ragen.learn.batch import collate_segments
from ragen.learn.policy import Policy

Ids = Sequence[int]


def cross_likelihood(
    policy: Policy, prompts: Sequence[Ids], replies: Sequence[Ids], microbatch_tokens: int
) -> NDArray[np.float64]:
    """log π(r_n | x_p) (nats) of each reply n after each prompt p, (N, P): sums over tokens, at the policy's temperature.

    Each prompt is computed once for the replies that fit into a micro-batch with it, not once a pair. Nothing is changed.
    ValueError for an empty prompt or reply.
    """
    if not all(map(len, (*prompts, *replies))):
        raise ValueError("every prompt and every reply needs a token")
    rows = [_row(prompt, reply) for reply in replies for prompt in prompts]
    if not rows:
        return np.zeros((len(replies), len(prompts)))
    batch = collate_segments(rows, policy.pad_id)
    sums = policy.logprobs(batch, microbatch_tokens).sum(dim=1, dtype=torch.float64)
    return sums.reshape(len(replies), len(prompts)).numpy()


def _row(prompt: Ids, reply: Ids) -> Segment:
    ids = np.asarray([*prompt, *reply], dtype=np.int64)
    sampled = np.arange(ids.size) >= len(prompt)
    nothing = np.zeros(ids.size)
    return Segment(ids, sampled, nothing.astype(np.float32), np.where(sampled, 0, -1).astype(np.int32), nothing)
