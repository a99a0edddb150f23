"""What groups are ranked by: one number ≥ 0 a group, U(s₀), from what its members did."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen.registry import Registry

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Members:
    """A group of G ≥ 1 episodes, each array (G,): raw returns, mean entropy (nats) of the sampled tokens, their number."""

    returns: Floats
    entropies: Floats
    lengths: Floats


Uncertainty = Callable[[Members], float]

filter_metrics: Registry[Uncertainty] = Registry("filter metric", plural="filter_metrics")


@filter_metrics.register("std")
def return_std(members: Members) -> float:
    """U = √( Σ (Rᵢ − R̄)² / (G − 1) ), and exactly 0 where all returns are equal or G is 1.

    Source: RAGEN (arXiv 2504.20073), StarPO-S.
    """
    return spread(members.returns)


@filter_metrics.register("entropy")
def mean_entropy(members: Members) -> float:
    """U = mean over members of their mean token entropy: how unsure the policy was of its words."""
    return float(members.entropies.mean())


@filter_metrics.register("entropy_std")
def entropy_std(members: Members) -> float:
    """U = standard deviation over members (Bessel's correction) of their mean token entropy."""
    return spread(members.entropies)


@filter_metrics.register("length")
def mean_length(members: Members) -> float:
    """U = mean number of sampled tokens of a member."""
    return float(members.lengths.mean())


@filter_metrics.register("length_std")
def length_std(members: Members) -> float:
    """U = standard deviation over members (Bessel's correction) of their number of sampled tokens."""
    return spread(members.lengths)


def is_flat(values: Floats) -> bool:
    """Whether max = min: exact, never a threshold on the standard deviation (rounding can leave 1e-17 there)."""
    return values.size == 0 or bool(values.max() == values.min())


def spread(values: Floats) -> float:
    """Standard deviation of (G,) values with Bessel's correction; exactly 0.0 where they are flat."""
    return 0.0 if is_flat(values) else float(np.std(values.astype(np.float64), ddof=1))
