"""What a policy loss is, and where losses are found by name."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ragen.registry import Registry


@dataclass(frozen=True, slots=True)
class LossTerms:
    """Scalars that add up over the micro-batches of one mini-batch.

    ``clipped_low`` and ``clipped_high`` are Σ weights over the tokens whose gradient the lower or upper clip removed: the
    share of such tokens where the weights of the mini-batch sum to 1 (divide by their sum where they do not).
    """

    loss: Tensor
    clipped_low: Tensor
    clipped_high: Tensor


class PolicyLoss(Protocol):
    """A policy loss: a pure function of tensors of one shape, (R, T) or the sampled tokens alone (N,).

    ``weights`` come from ``token_weights``; nothing where the weight is 0 is looked at.
    """

    def __call__(
        self,
        logprobs: Tensor,
        old_logprobs: Tensor,
        advantages: Tensor,
        weights: Tensor,
        *,
        clip_low: float,
        clip_high: float,
    ) -> LossTerms:
        """Compute the loss to minimise."""
        ...


losses: Registry[PolicyLoss] = Registry("loss", plural="losses")
