"""What an advantage estimator is, and where estimators are found by name."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from ragen.algos.credit import Credit
from ragen.registry import Registry

F = TypeVar("F", bound=Callable[..., Credit])


@dataclass(frozen=True, slots=True)
class AdvantageEstimator:
    """A registered estimator: a pure function of a batch, with what a caller must know about it.

    Call it with ``rewards`` (R, T), ``mask`` (R, T) bool, ``turn_ids`` (R, T), ``trajectory`` (R,), ``group`` (R,), where
    ``needs_values`` also ``values`` (R, T); ``truncated`` (R,) bool; and its own settings (the names in ``settings``) as
    keywords. Nothing off the mask is looked at. The result is on the device of ``rewards``.
    """

    compute: Callable[..., Credit]
    needs_values: bool
    settings: tuple[str, ...]

    def __call__(
        self,
        rewards: Tensor,
        mask: Tensor,
        turn_ids: Tensor,
        trajectory: Tensor,
        group: Tensor,
        values: Tensor | None = None,
        truncated: Tensor | None = None,
        **settings: Any,
    ) -> Credit:
        """Compute the credit of a batch."""
        return self.compute(rewards, mask, turn_ids, trajectory, group, values, truncated, **settings)


advantages: Registry[AdvantageEstimator] = Registry("advantage")


def register_advantage(name: str, *, needs_values: bool) -> Callable[[F], F]:
    """Decorator that registers a function as an estimator; its keyword-only parameters are its settings."""

    def add(compute: F) -> F:
        parameters = inspect.signature(compute).parameters.values()
        own = tuple(p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY)
        advantages.register(name)(AdvantageEstimator(compute, needs_values, own))
        return compute

    return add
