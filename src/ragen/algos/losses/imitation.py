"""Learning from demonstrations beside RL: the supervised loss, how tokens count in it, and its share over time."""

from typing import Literal

import torch
from torch import Tensor

from ragen.algos.reduce import weighted_sum

Weighting = Literal["uniform", "phi"]


def imitation_loss(logprobs: Tensor, weights: Tensor, weighting: Weighting) -> Tensor:
    """loss = −Σ w · φ · log π over demonstrated tokens (scalar); φ = 1 (``uniform``), or p (1 − p) without gradient, p = π.

    φ is largest at p = ½: tokens the policy is sure of, and those it would never choose, teach little, so demonstrations
    far from the policy do not tear it away. Both tensors (R, T) or (N,); tokens of weight 0 are never looked at.
    Source: CHORD (arXiv 2508.11408): its supervised loss, and the token-wise weight of CHORD-φ.
    """
    logprobs = torch.where(weights != 0, logprobs, 0)
    if weighting == "phi":
        p = logprobs.detach().exp()
        return -weighted_sum(p * (1 - p) * logprobs, weights)
    return -weighted_sum(logprobs, weights)


def linear_schedule(step: int, start: float, end: float, steps: int) -> float:
    """From ``start`` at step 0 to ``end`` at ``steps`` in a straight line, then ``end``; ``start`` throughout if steps is 0.

    >>> [linear_schedule(step, 0.75, 0.25, 4) for step in (0, 1, 4, 9)]
    [0.75, 0.625, 0.25, 0.25]
    """
    if steps == 0:
        return start
    share = min(1.0, step / steps)
    return (1 - share) * start + share * end
