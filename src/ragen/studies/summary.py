"""The numbers of a report: a row a variant and outcome, with its interval, the paper's number, the gap to the baseline."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ragen.metrics.evaluation import EvalReport, rate_interval
from ragen.metrics.intervals import mean_interval, wilson
from ragen.studies.grid import Plan, Variant
from ragen.studies.outcomes import Outcome, Record, parse_outcome

Interval = tuple[float, float]
NOTHING: Interval = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Row:
    """One variant in one outcome.

    ``values`` are those of its S seeds, by seed. For a rate or a number ``mean`` is their mean; for a step it is the share
    of seeds in which it happened, and ``values`` are the steps of those. ``instances`` is the number of fixed evaluation
    instances of a rate. ``difference`` is the mean over seeds of variant − baseline, None for the baseline itself.
    """

    variant: Variant
    outcome: Outcome
    seeds: int
    instances: int | None
    values: Mapping[int, float]
    mean: float
    interval: Interval
    method: str
    paper: str
    difference: float | None = None
    difference_interval: Interval = NOTHING


def summarise(plan: Plan, records: Mapping[str, Record]) -> dict[str, list[Row]]:
    """Rows by outcome, in the study's order; ``records`` of the runs that are done, by name. Those without data go.

    Intervals are 95 %. Over two or more seeds that differ: Student's t over the seeds' values (the evaluation instances are
    the same in all runs, so it holds for these instances), held in [0, 1] for a rate. One seed, or seeds that all agree:
    Wilson over the instances of one run for a rate, none for a number. A step's share of seeds: Wilson over seeds. A
    difference: t over the seeds that both variants have, paired by seed (runs of one seed share warm-up and training
    instances).
    """
    tables = {}
    for outcome in map(parse_outcome, plan.study.outcomes):
        rows = {id(variant): _row(plan, variant, outcome, records) for variant in plan.variants}
        tables[outcome.name] = [
            _compared(row, rows.get(id(_baseline(plan, row.variant)))) for row in rows.values() if row is not None
        ]
    return tables


def _row(plan: Plan, variant: Variant, outcome: Outcome, records: Mapping[str, Record]) -> Row | None:
    done = {run.config.seed: records[run.name] for run in variant.runs if run.name in records}
    found = {seed: outcome.of(record) for seed, record in done.items()}
    values = {seed: value for seed, value in found.items() if value is not None}
    paper = paper_number(plan, variant, outcome)
    if outcome.kind == "step":
        happened = {seed for seed, record in done.items() if record.steps}
        if not happened:
            return None
        share, interval = len(values) / len(happened), wilson(len(values), len(happened))
        return Row(variant, outcome, len(happened), None, values, share, interval, "Wilson over seeds", paper)
    if not values:
        return None
    numbers = list(values.values())
    reports = [report for seed in values if (report := outcome.report(done[seed])) is not None]
    instances = reports[0].episodes if reports else None
    interval, method = _interval(numbers, reports)
    return Row(variant, outcome, len(values), instances, values, float(np.mean(numbers)), interval, method, paper)


def _interval(numbers: Sequence[float], reports: Sequence[EvalReport]) -> tuple[Interval, str]:
    """The interval of the mean and how it was made; a rate comes with the ``reports`` it was taken from."""
    if reports and len(set(numbers)) == 1:
        interval, method = rate_interval(reports[0].outcomes)
        return interval, f"{method} of one run"
    if len(set(numbers)) == 1:  # values that all agree say nothing of other seeds
        return NOTHING, "–"
    low, high = mean_interval(numbers)
    return ((max(0.0, low), min(1.0, high)) if reports else (low, high)), "t over seeds"


def _baseline(plan: Plan, variant: Variant) -> Variant | None:
    """The variant with the baseline's values in the baseline's axes and the same in all others."""
    wanted = {**variant.values, **plan.study.baseline}
    return next((other for other in plan.variants if other.values == wanted), None)


def _compared(row: Row, base: Row | None) -> Row:
    if base is None or base.variant is row.variant or row.outcome.kind == "step":
        return row
    shared = [seed for seed in row.values if seed in base.values]
    if not shared:
        return row
    gaps = [row.values[seed] - base.values[seed] for seed in shared]
    low, high = mean_interval(gaps) if len(set(gaps)) > 1 else NOTHING  # seeds that all agree say nothing of others
    if row.outcome.kind == "rate" and len(set(gaps)) > 1:
        low, high = max(-1.0, low), min(1.0, high)
    return replace(row, difference=float(np.mean(gaps)), difference_interval=(low, high))


def paper_number(plan: Plan, variant: Variant, outcome: Outcome) -> str:
    """The paper's number for a variant, as text; "" where it gives none."""
    for row in plan.study.numbers:
        axes = {key: str(value) for key, value in row.items() if key in plan.study.axes}
        if outcome.name in row and all(variant.values[axis] == value for axis, value in axes.items()):
            number = row[outcome.name]
            return f"{number:g}" if isinstance(number, int | float) else str(number)
    return ""
