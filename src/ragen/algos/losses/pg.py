"""The plain policy gradient, without a ratio."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.reduce import weighted_sum


@register_loss("pg")
def pg(logprobs: Tensor, advantages: Tensor, weights: Tensor) -> LossTerms:
    """loss = −Σ w · A · log π: its gradient is −Σ w A ∇log π, REINFORCE's.

    All tensors (R, T) or (N,); tokens of weight 0 are never looked at. Nothing holds the policy near the one that sampled:
    from the second optimiser step of a batch on the gradient is biased. The loss's value has no meaning of its own.
    Source: Williams (1992), with a baseline inside A.
    """
    used = weights != 0
    return LossTerms(-weighted_sum(torch.where(used, logprobs, 0) * torch.where(used, advantages, 0).detach(), weights))
