"""What a policy loss is, and where losses are found by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from torch import Tensor

from ragen.algos.reduce import Mean
from ragen.algos.rule import Rule, is_rule, registered
from ragen.registry import OWN_RULE, Registry


@dataclass(frozen=True, slots=True)
class LossTerms:
    """The ``loss`` to minimise (scalar) and the ``means`` to report, by the name that is logged under ``update/``.

    For a rule of tokens alone, loss and means add up over the micro-batches of a mini-batch.
    """

    loss: Tensor
    means: Mapping[str, Mean] = field(default_factory=dict)


F = TypeVar("F", bound=Callable[..., LossTerms])

PolicyLoss = Rule[LossTerms]
"""The loss to minimise, a pure function. It takes by position those of these arrays that it needs, by name, and its own
settings by keyword only. Arrays of tokens have one shape, (R, T) or the sampled tokens alone (N,); nothing where the weight
is 0 is looked at:

- ``logprobs``, ``old_logprobs`` (before the update), ``reference_logprobs``, ``advantages``
- ``weights`` of ``token_weights``; of the tokens the rule learns from alone, where it chooses some of them
- ``units``: the number of the unit (trajectory or turn) that has a ratio of its own; ``trajectories``, ``turns``: the
  number of the token's trajectory, and of its turn among all turns
- ``chosen``: True on the tokens of trajectories to imitate

Arrays of another shape: ``trajectory_pairs``, ``turn_pairs`` (Q, 2): numbers of the better and the worse one;
``labels`` (M,): 1 = a good trajectory, −1 = a bad one, 0 = neither. A rule without ``advantages`` needs no advantage
estimator.
"""

losses: Registry[PolicyLoss] = Registry("loss", plural="losses", own=OWN_RULE, fits=is_rule)


def register_loss(name: str) -> Callable[[F], F]:
    """Decorator that registers a function as a policy loss."""
    return registered(losses, name)
