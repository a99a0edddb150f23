"""Demonstrations inside the update: loss = (1 − μ) · RL + μ · supervised (CHORD, arXiv 2508.11408)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.algos.losses.imitation import Weighting, imitation_loss
from ragen.algos.reduce import token_weights
from ragen.learn.batch import Batch
from ragen.learn.policy import Policy


@dataclass(frozen=True, slots=True)
class Imitation:
    """``batch``: demonstrated episodes; ``coef``: μ in [0, 1]; ``weighting`` of their tokens."""

    batch: Batch
    coef: float
    weighting: Weighting = "uniform"

    def part(self, index: int, count: int) -> list[int]:
        """The rows that go with mini-batch ``index`` of the ``count`` of a pass; none where there are fewer rows."""
        return list(range(index, len(self.batch.lengths), count))

    def accumulate(self, policy: Policy, rows: list[int], budget: int) -> Tensor:
        """Add μ · the loss of these rows to the gradients; return the loss (a mean over their tokens, without μ).

        Log-probabilities are at temperature 1, as in the warm-up.
        """
        inside = torch.zeros(len(self.batch.lengths), dtype=torch.bool)
        inside[rows] = True
        weights = token_weights(self.batch.mask & inside[:, None], self.batch.trajectory, "token-mean")
        total = torch.zeros((), device=policy.device)
        for micro in policy.plan(self.batch, rows, budget):
            outputs = policy.token_outputs(micro, temperature=1.0)
            each = weights[micro.rows, micro.columns].to(policy.device)
            loss = imitation_loss(outputs.logprobs, each, self.weighting)
            (self.coef * loss).backward()
            total += loss.detach()
        return total
