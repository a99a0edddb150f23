"""What a policy loss is, and where losses are found by name."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from ragen.algos.rule import Rule, registered
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


F = TypeVar("F", bound=Callable[..., LossTerms])

PolicyLoss = Rule[LossTerms]
"""The loss to minimise, a pure function of tensors of one shape, (R, T) or the sampled tokens alone (N,). It takes by
position those of these that it needs, by name: ``logprobs``, ``old_logprobs`` (before the update), ``advantages``,
``weights`` (of ``token_weights``); and its own settings by keyword only. Nothing where the weight is 0 is looked at.
"""

losses: Registry[PolicyLoss] = Registry("loss", plural="losses")


def register_loss(name: str) -> Callable[[F], F]:
    """Decorator that registers a function as a policy loss."""
    return registered(losses, name)
