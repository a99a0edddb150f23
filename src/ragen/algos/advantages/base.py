"""What an advantage estimator is, and where estimators are found by name."""

from collections.abc import Callable
from typing import TypeVar

from ragen.algos.credit import Credit
from ragen.algos.rule import Rule, is_rule, registered
from ragen.registry import OWN_RULE, Registry

F = TypeVar("F", bound=Callable[..., Credit])

AdvantageEstimator = Rule[Credit]
"""A pure function of a batch. It takes by position those of these arrays that it needs, by name: ``rewards`` (R, T),
``mask`` (R, T) bool, ``turn_ids`` (R, T), ``trajectory`` (R,), ``group`` (R,), ``anchors`` (R, T) int64 (equal numbers in a
group = the turns began in the same state; −1 = not known), ``values`` (R, T, the critic's; asking for them makes a policy
have a critic), ``truncated`` (R,) bool, ``baseline`` () float64 (mean return of earlier steps); and its own settings by
keyword only. Nothing off the mask is looked at. The result is on the device of ``rewards``.
"""

KL_IN_REWARD = "kl_in_reward"  # the trait of a rule whose rewards may contain a KL term a token

advantages: Registry[AdvantageEstimator] = Registry("advantage", own=OWN_RULE, fits=is_rule)


def register_advantage(name: str, *traits: str) -> Callable[[F], F]:
    """Decorator that registers a function as an estimator; ``traits``: ``KL_IN_REWARD``."""
    return registered(advantages, name, *traits)
