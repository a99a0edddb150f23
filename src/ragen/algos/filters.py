"""Which groups train: the uncertainty filter of StarPO-S and its relatives. Whole groups are kept or dropped."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ragen.algos.uncertainty import Members, filter_metrics, is_flat, spread
from ragen.errors import ConfigError
from ragen.registry import Registry

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
FilterRule = Callable[[Floats, Bools, float], Floats]
_TOLERANCE = 1e-9  # relative: larger than rounding (0.29 · 100 < 29 in floating point), smaller than any real difference

filters: Registry[FilterRule] = Registry("filter")


class GroupStats(NamedTuple):
    """For each of P groups: ``std`` (P,) of its returns (Bessel's correction), and ``flat`` (P,): max = min."""

    std: Floats
    flat: Bools


@dataclass(frozen=True, slots=True)
class Selection:
    """``kept`` (Q,): indices of the kept groups, ascending; ``weights`` (Q,): theirs, 1 unless ``soft``; ``flat`` (P,)."""

    kept: NDArray[np.int64]
    weights: Floats
    flat: Bools


def group_stats(returns: Sequence[Floats]) -> GroupStats:
    """Statistics of P groups from their members' *raw* returns, one array (G,) a group; sizes may differ.

    A group is flat iff its largest return equals its smallest: exact, never a threshold on the standard deviation (rounding
    can leave 1e-17 there). A flat group, one of a single member and an empty one have std exactly 0 and are flat.
    """
    flat = np.array([is_flat(r) for r in returns], dtype=np.bool_)
    return GroupStats(np.array([spread(r) for r in returns], dtype=np.float64), flat)


def group_uncertainty(groups: Sequence[Members], metric: str) -> GroupStats:
    """U(s₀) of P groups by a metric's name as ``std`` (P,); ``flat`` (P,) is that of the returns, whatever the metric.

    Raises ConfigError for an unknown metric.
    """
    measure = filter_metrics.get(metric)
    flat = np.array([is_flat(members.returns) for members in groups], dtype=np.bool_)
    return GroupStats(np.array([measure(members) for members in groups], dtype=np.float64), flat)


def select_groups(stats: Floats, flat: Bools, *, strategy: str, value: float = 1.0) -> Selection:
    """Select groups by ``stats`` (P,) ≥ 0, the uncertainty U(s₀) of each: the std of its returns, or another metric.

    Strategies, with the meaning of ``value``; "live" groups are those not ``flat`` (P,):

    - ``none``: every group
    - ``top_fraction``: the ⌈value · P⌉ highest live groups (0.29 of 100 is 29)
    - ``top_p``: the smallest set of highest live groups whose share of the summed stats reaches ``value``
    - ``top_k``: the ``value`` highest live groups
    - ``min_p``: live groups with a stat ≥ ``value`` · max
    - ``soft``: every group, weighted by stat / max (live ones by 1 where all are 0, flat ones by 0); ``value`` is not used

    A flat group is kept only where everything is: by ``none``, by ``soft`` (with weight 0), by a share of 1 (of
    ``top_fraction``, ``top_p``) and by ``top_k`` ≥ P. Otherwise at least one live group stays, and where all are flat
    nothing is kept (``soft`` included). Of equal stats the lower index is kept first. The scale of ``stats`` has no effect.
    Raises ConfigError for an unknown strategy or impossible value, ValueError for stats that are negative or not finite.
    Source: RAGEN (arXiv 2504.20073), StarPO-S, §"uncertainty filter".
    """
    if stats.shape != flat.shape or stats.ndim != 1:
        raise ValueError(f"stats and flat must both have shape (P,), got {stats.shape} and {flat.shape}")
    if not bool(np.all(np.isfinite(stats) & (stats >= 0))):
        raise ValueError(f"the stats of groups must be finite and not negative, got {stats.tolist()}")
    weights = filters.get(strategy)(stats.astype(np.float64), flat, value)
    kept = np.arange(len(stats)) if strategy == "soft" and bool((weights > 0).any()) else np.flatnonzero(weights > 0)
    return Selection(kept.astype(np.int64), weights[kept], flat)


@filters.register("none")
def keep_all(stats: Floats, flat: Bools, value: float) -> Floats:
    """Weight 1 for every group."""
    return np.ones_like(stats)


@filters.register("top_fraction")
def top_fraction(stats: Floats, flat: Bools, value: float) -> Floats:
    """Weight 1 for the ⌈value · P⌉ highest live groups; value 1 keeps all."""
    _check_share("top_fraction", value)
    if value == 1:
        return np.ones_like(stats)
    return _highest(stats, flat, math.ceil(value * len(stats) * (1 - _TOLERANCE)))


@filters.register("top_p")
def top_p(stats: Floats, flat: Bools, value: float) -> Floats:
    """Weight 1 for the fewest highest live groups that hold the share ``value`` of the summed stats; value 1 keeps all."""
    _check_share("top_p", value)
    if value == 1:
        return np.ones_like(stats)
    mass = np.cumsum(stats[_ranking(stats, flat)])
    if not mass.size:
        return np.zeros_like(stats)
    return _highest(stats, flat, int(np.searchsorted(mass, value * mass[-1] * (1 - _TOLERANCE))) + 1)


@filters.register("top_k")
def top_k(stats: Floats, flat: Bools, value: float) -> Floats:
    """Weight 1 for the ``value`` highest live groups; a value ≥ P keeps all."""
    if value < 1 or value != int(value):
        raise ConfigError(f"filter.value is {value}: 'top_k' takes a number of groups, 1 or more; set filter.value to one")
    return np.ones_like(stats) if value >= len(stats) else _highest(stats, flat, int(value))


@filters.register("min_p")
def min_p(stats: Floats, flat: Bools, value: float) -> Floats:
    """Weight 1 for live groups with a stat of at least ``value`` times the highest live one."""
    _check_share("min_p", value)
    live = np.where(flat, 0.0, stats)
    return np.where(~flat & (live >= value * live.max(initial=0.0) * (1 - _TOLERANCE)), 1.0, 0.0)


@filters.register("soft")
def soft(stats: Floats, flat: Bools, value: float) -> Floats:
    """Weight stat / max stat for every live group (1 where all these stats are 0), 0 for a flat one."""
    live = np.where(flat, 0.0, stats)
    highest = live.max(initial=0.0)
    return live / highest if highest > 0 else np.where(flat, 0.0, 1.0)


def _check_share(strategy: str, value: float) -> None:
    if not 0 < value <= 1:
        raise ConfigError(f"filter.value is {value}: '{strategy}' takes a share in (0, 1]; set filter.value to one")


def _ranking(stats: Floats, flat: Bools) -> NDArray[np.intp]:
    """Indices of the live groups, highest stat first, equal ones by index."""
    live = np.flatnonzero(~flat)
    return live[np.argsort(-stats[live], kind="stable")]


def _highest(stats: Floats, flat: Bools, count: int) -> Floats:
    weights = np.zeros_like(stats)
    weights[_ranking(stats, flat)[:count]] = 1.0
    return weights
