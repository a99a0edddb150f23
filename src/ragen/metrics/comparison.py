"""Two evaluations on the same instances, compared instance by instance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ragen.metrics.evaluation import EvalReport, Interval
from ragen.metrics.intervals import mcnemar, paired_bootstrap, paired_score


@dataclass(frozen=True, slots=True)
class InstanceResult:
    """One instance in both evaluations: the share of its samples that succeeded, and their mean total return."""

    instance: int
    success: tuple[float, float]
    total_return: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Comparison:
    """``second`` against ``first`` on the n instances both played; differences are second − first, intervals 95 %.

    ``wins``, ``losses`` and ``ties`` count the instances on which ``second`` succeeded more often, less often, equally;
    ``p_value`` is that of the exact McNemar test on them. ``unpaired`` counts instances that only one of them has.
    """

    first: str
    second: str
    n: int
    success_difference: float
    success_interval: Interval
    return_difference: float
    return_interval: Interval
    wins: int
    losses: int
    ties: int
    p_value: float
    method: str
    unpaired: int
    instances: tuple[InstanceResult, ...]


def compare_reports(first: EvalReport, second: EvalReport) -> Comparison:
    """Compare in pairs; raises ValueError where there is no instance in common, or a report tells no returns.

    Success: Tango's score interval where each instance was played once, else a bootstrap of the instances; where all
    instances differ by the same amount, which leaves a bootstrap without width, the score interval of as many pairs.
    Return: bootstrap of the instances.
    """
    one, two = _by_instance(first), _by_instance(second)
    shared = [instance for instance in first.instances if instance in two]
    if not shared:
        raise ValueError("the two evaluations have no instance in common")
    rows = tuple(InstanceResult(i, (one[i][0], two[i][0]), (one[i][1], two[i][1])) for i in shared)
    success = np.asarray([row.success for row in rows])
    returns = np.asarray([row.total_return for row in rows])
    change = success[:, 1] - success[:, 0]
    wins, losses = int((change > 0).sum()), int((change < 0).sum())
    once = all(len(row) == 1 for report in (first, second) for row in report.outcomes)
    interval, method = _success_interval(change, once=once)
    return Comparison(
        first=first.model,
        second=second.model,
        n=len(shared),
        success_difference=float(change.mean()),
        success_interval=interval,
        return_difference=float((returns[:, 1] - returns[:, 0]).mean()),
        return_interval=paired_bootstrap(returns[:, 0], returns[:, 1]),
        wins=wins,
        losses=losses,
        ties=len(shared) - wins - losses,
        p_value=mcnemar(wins, losses),
        method=f"success: {method}, exact McNemar test; return: bootstrap of instances",
        unpaired=len(one) + len(two) - 2 * len(shared),
        instances=rows,
    )


def _by_instance(report: EvalReport) -> dict[int, tuple[float, float]]:
    if len(report.returns) != len(report.instances):
        raise ValueError(f"the evaluation of '{report.model}' tells no returns by instance")
    results = zip(report.instances, report.outcomes, report.returns, strict=True)
    return {instance: (float(np.mean(won)), float(np.mean(totals))) for instance, won, totals in results}


def _success_interval(change: NDArray[np.float64], *, once: bool) -> tuple[Interval, str]:
    gains, falls = float(change.clip(min=0).sum()), float((-change).clip(min=0).sum())
    if once:
        return paired_score(gains, falls, len(change)), "paired score interval (Tango)"
    if change.max() == change.min():
        return paired_score(gains, falls, len(change)), "paired score interval (Tango), instances do not differ"
    return paired_bootstrap(np.zeros_like(change), change), "bootstrap of instances"
