"""What a run came to: named numbers, each a pure function of what the run recorded."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ragen.errors import ConfigError
from ragen.metrics.definitions import METRICS
from ragen.metrics.evaluation import EvalReport
from ragen.registry import nearest
from ragen.studies.collapse import fall_step, rise_step, spike_step

Kind = Literal["rate", "number", "step"]
EDGE = 0.1  # the share of the steps that counts as the beginning or the end of a run


@dataclass(frozen=True, slots=True)
class Record:
    """What a finished run left: its metrics, one mapping a step, and its evaluations by name; ``env`` is its environment."""

    env: str
    steps: tuple[Mapping[str, Any], ...]
    evaluations: Mapping[str, EvalReport]

    def curve(self, metric: str) -> list[float | None]:
        """One value a step, None where the metric had no data."""
        return [row.get(metric) for row in self.steps]

    def evaluation(self, when: str, env: str) -> EvalReport | None:
        """The evaluation ``before`` or ``after`` training, on the run's own environment ("") or another one.

        Without training there is one evaluation, which is both.
        """
        suffix = f"-{env}" if env and env != self.env else ""
        if when == "after" and not self.steps:
            when = "before"
        return self.evaluations.get(when + suffix)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A number of a run. A "rate" is a success rate on fixed instances, a "step" is when something happened, if it did.

    ``report`` finds the evaluation that a rate is taken from; ``env`` is the environment it asks for ("" = the run's own).
    """

    name: str
    kind: Kind
    about: str
    of: Callable[[Record], float | None]
    report: Callable[[Record], EvalReport | None] = lambda record: None
    env: str = ""


def parse_outcome(text: str) -> Outcome:
    """The outcome of this name, ``KIND`` or ``KIND:ARGUMENT``; raises ConfigError with the nearest name."""
    name, colon, argument = text.partition(":")
    if name not in OUTCOMES:
        raise ConfigError(f"outcomes: there is no outcome '{name}': {nearest(name, list(OUTCOMES))}")
    takes, make = OUTCOMES[name]
    if takes == "metric" and argument not in METRICS:
        raise ConfigError(f"outcomes: '{text}' names no metric: {nearest(argument, list(METRICS), 'docs/metrics.md')}")
    if (takes == "" and colon) or (takes not in ("", "environment") and not argument):
        raise ConfigError(f"outcomes: write {name}{':' + takes.upper() if takes else ''} instead of '{text}'")
    return make(text, argument)


def _rate(text: str, about: str, report: Callable[[Record], EvalReport | None], env: str = "") -> Outcome:
    def of(record: Record) -> float | None:
        found = report(record)
        return None if found is None else found.success

    return Outcome(text, "rate", about, of, report, env)


def _success(text: str, env: str) -> Outcome:
    return _rate(text, f"success after training{_on(env)}", lambda record: record.evaluation("after", env), env)


def _start(text: str, env: str) -> Outcome:
    return _rate(text, f"success before training{_on(env)}", lambda record: record.evaluation("before", env), env)


def _on(env: str) -> str:
    """An environment of ``eval.also`` is played as its preset says, whatever settings and budgets the run's own has."""
    return (
        f" on {env} (of eval.also: with its preset's settings and budgets), on fixed instances"
        if env
        else ", on fixed instances"
    )


def _peak(text: str, argument: str) -> Outcome:
    del argument

    def best(record: Record) -> EvalReport | None:
        own = (
            report
            for name, report in record.evaluations.items()
            if name in ("before", "after") or name.removeprefix("step-").isdigit()
        )
        return max(own, key=lambda report: report.success, default=None)

    return _rate(text, "largest success of all evaluations of a run (a maximum: it lies above the truth)", best)


def _collapse(text: str, argument: str) -> Outcome:
    del argument
    return Outcome(
        text,
        "step",
        "step from which success in training stays below half of the most it had reached",
        lambda record: fall_step(record.curve("rollout/success")),
    )


def _fall(text: str, metric: str) -> Outcome:
    about = f"step from which {metric} stays below half of the most it had reached"
    return Outcome(text, "step", about, lambda record: fall_step(record.curve(metric)))


def _lead(text: str, metric: str) -> Outcome:
    def of(record: Record) -> float | None:
        collapse, warning = fall_step(record.curve("rollout/success")), fall_step(record.curve(metric))
        return None if collapse is None or warning is None else float(collapse - warning)

    return Outcome(text, "number", f"steps by which the fall of {metric} comes before the collapse, where both came", of)


def _spike(text: str, argument: str) -> Outcome:
    del argument
    about = "first step whose gradient norm exceeds 5 times the median of the 20 before it"
    return Outcome(text, "step", about, lambda record: spike_step(record.curve("update/grad_norm")))


def _reach(text: str, level: str) -> Outcome:
    try:
        number = float(level)
    except ValueError:
        number = math.nan
    if not 0 < number <= 1:
        raise ConfigError(f"outcomes: '{text}' needs a success rate above 0 and up to 1, such as reach:0.8")
    about = f"first step at which success in training, over 5 steps, is at least {number:g}"
    return Outcome(text, "step", about, lambda record: rise_step(record.curve("rollout/success"), number))


def _over(part: str, words: str, reduce: Callable[[np.ndarray], np.floating[Any]]) -> Callable[[str, str], Outcome]:
    def make(text: str, metric: str) -> Outcome:
        def of(record: Record) -> float | None:
            curve = record.curve(metric)
            edge = max(1, round(EDGE * len(curve)))
            span = {"first": slice(edge), "last": slice(-edge, None)}.get(part, slice(None))
            known = np.asarray([value for value in curve[span] if value is not None], dtype=np.float64)
            return float(reduce(known)) if known.size else None

        return Outcome(text, "number", f"{metric}, {words}", of)

    return make


OUTCOMES: Mapping[str, tuple[str, Callable[[str, str], Outcome]]] = {
    "success": ("environment", _success),
    "start": ("environment", _start),
    "peak": ("", _peak),
    "collapse": ("", _collapse),
    "fall": ("metric", _fall),
    "lead": ("metric", _lead),
    "spike": ("", _spike),
    "reach": ("level", _reach),
    "first": ("metric", _over("first", "mean of the first tenth of the steps", np.mean)),
    "last": ("metric", _over("last", "mean of the last tenth of the steps", np.mean)),
    "mean": ("metric", _over("mean", "mean of all steps", np.mean)),
    "max": ("metric", _over("max", "maximum of all steps", np.max)),
}
