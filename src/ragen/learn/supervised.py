"""Supervised fine-tuning on demonstrations: the warm-up, on the same rows, packing and head as the update."""

import torch
from torch import Tensor

from ragen.learn.batch import Batch
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy


def supervised_step(policy: Policy, optimizer: Optimizer, batch: Batch, *, microbatch_tokens: int) -> float | None:
    """Take one optimiser step; returns the loss before it: the mean −log π (nats, temperature 1) of the tokens on the mask.

    A batch without a token on the mask changes nothing and gives None. A step skipped for non-finite numbers gives its
    non-finite loss; TrainingError after three in a row.
    """
    count = int(batch.mask.sum())
    if not count:
        return None
    total = torch.zeros((), device=policy.device)
    with policy.training_mode():
        for micro in policy.plan(batch, list(range(len(batch.lengths))), microbatch_tokens):
            loss: Tensor = -policy.token_outputs(micro, temperature=1.0).logprobs.sum() / count
            loss.backward()
            total += loss.detach()
    optimizer.step({"supervised loss": total})
    return float(total)
