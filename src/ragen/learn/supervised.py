"""Supervised fine-tuning on demonstrations: the warm-up, on the same rows, packing and head as the update."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from ragen.learn.batch import Batch
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy


def supervised_epoch(
    policy: Policy, optimizer: Optimizer, batches: Iterable[Batch], *, microbatch_tokens: int
) -> Iterator[float]:
    """Take one optimiser step a batch; yield its loss: the mean −log π (nats, temperature 1) over the tokens on the mask.

    A step skipped for non-finite numbers yields its non-finite loss; TrainingError after three in a row. A batch without a
    token on the mask is passed over.
    """
    for batch in batches:
        count = int(batch.mask.sum())
        if count:
            yield _step(policy, optimizer, batch, count, microbatch_tokens)


def _step(policy: Policy, optimizer: Optimizer, batch: Batch, count: int, budget: int) -> float:
    total = torch.zeros((), device=policy.device)
    with policy.training_mode():
        for micro in policy.plan(batch, list(range(len(batch.lengths))), budget):
            loss: Tensor = -policy.token_outputs(micro, temperature=1.0).logprobs.sum() / count
            loss.backward()
            total += loss.detach()
    optimizer.step({"supervised loss": total})
    return float(total)
