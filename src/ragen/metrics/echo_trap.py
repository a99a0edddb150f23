"""The Echo Trap, read off a run's metrics: early warning, gradient spike, collapse (arXiv 2504.20073, findings F1 and F2).

The paper: in-group reward std and entropy move before the mean return does, replies come to repeat one wording, and a spike
of the gradient norm marks the point from which a run does not come back; a healthy entropy falls smoothly. It gives no rule;
the one below is ours. It is a function of the metrics recorded so far, so a resumed run sees what an unbroken one sees.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ragen.metrics.curves import SHARE, SPIKE, WINDOW, Bools, Floats, curve, last, smoothed, spikes
from ragen.metrics.intervals import t_quantile

PATIENCE = 3  # steps in a row for which a fall must hold
CERTAINTY = 3.0  # standard errors by which a level must have fallen
FEW = 10  # healthy steps: of fewer the spread itself is hardly known, and Student's t of the same certainty takes its place


@dataclass(frozen=True, slots=True)
class TrapSettings:
    """``window``: steps a level is a mean of; ``drop``: the share of the healthy level below which it has fallen; ``spike``:
    multiple of the median gradient norm; ``solved``: success rate from which on falling levels are what success looks like.
    """

    window: int = WINDOW
    drop: float = SHARE
    spike: float = SPIKE
    solved: float = 0.9


@dataclass(frozen=True, slots=True)
class Signals:
    """The steps at which each signal was first given (None: not yet), and what gave the warning: names of ``WATCHED``."""

    warning: int | None = None
    fired: tuple[str, ...] = ()
    spike: int | None = None
    collapsed: int | None = None

    def metrics(self) -> dict[str, float]:
        """Each signal as it is logged: 1 from the step on at which it was first given, else 0."""
        given = {"warning": self.warning, "spike": self.spike, "collapsed": self.collapsed}
        return {f"trap/{name}": float(step is not None) for name, step in given.items()}


WATCHED = ("reward std", "entropy", "repetition")
NOTHING = Signals()


def detect(history: Sequence[Mapping[str, float | None]], settings: TrapSettings = TrapSettings()) -> Signals:
    """The signals of a run from its metrics, one mapping a step as in ``metrics.jsonl`` (``step`` and ``METRICS``' names).

    **Level**: x̄_t is the mean of x over the last w = ``window`` steps (none where one of them lacks x). **Fallen** at
    t: at each of the three steps u = t − 2, t − 1, t is x̄_u < drop · μ and μ − x̄_u > c σ √(1/w + 1/n), where the
    healthy level μ and spread σ are mean and standard deviation of x over all n ≥ w steps before the *first* of the
    three windows, and c is 3, or for n < 10 the quantile of Student's t_{n−1} of the same certainty. One step of few
    groups is noisy, hence three; how noisy the run's own past tells. What falls must not enter the level it fell from,
    hence one healthy level for all three: a lasting fall to nothing from n steps with μ > c σ √(1/w + 1/n) is seen at
    its (w + 2)-th step at the latest.

    - *reward std*: the in-group std has fallen, beyond what a rising mean explains. Since σ² ≤ (best − m)(m − worst)
      (Bhatia and Davis, 2000), its healthy level and spread are first multiplied by
      min(1, √((best − m̄_u) / (best − μ(m)))), m the mean return and best the largest return seen so far.
    - *entropy*, *repetition*: the token entropy, and 1 − self-similarity, have fallen while the mean return is below its own
      healthy level: nothing was bought with them.
    - **warning**: reward std, or entropy and repetition together, while the success rate's level is below ``solved``: where
      everything succeeds all of them fall. Entropy alone gives none: a healthy one falls by any factor.
    - **spike**: a gradient norm of more than ``spike`` times the median of all earlier ones, and larger than each of them;
      there must be 2w of them, and success below ``solved``.
    - **collapsed**: the success rate has fallen.

    Scaling or shifting all rewards by constants (a positive factor), or scaling entropies or gradients, changes nothing. A
    signal once given never moves as the history grows. The earliest warning is at the (2w + 2)-th step.
    """
    if len(history) < 2 * settings.window:
        return NOTHING
    steps = [int(row["step"] or 0) for row in history]
    success = _Curve(_column(history, "rollout/success"), settings)
    unsolved = ~(success.levels[:, -1] >= settings.solved)
    fired = dict(zip(WATCHED, _falls(history, settings), strict=True))
    warning = _first((fired["reward std"] | (fired["entropy"] & fired["repetition"])) & unsolved)
    peaks = _peaks(_column(history, "update/grad_norm"), settings)
    spike = _first(peaks & unsolved & ~np.isnan(success.levels[:, -1]))
    collapsed = _first(success.fallen())
    return Signals(
        warning=None if warning is None else steps[warning],
        fired=() if warning is None else tuple(name for name in WATCHED if fired[name][warning]),
        spike=None if spike is None else steps[spike],
        collapsed=None if collapsed is None else steps[collapsed],
    )


def flat_steps(history: Sequence[Mapping[str, float | None]], settings: TrapSettings = TrapSettings()) -> int:
    """How many of the last steps in a row had no group whose returns differed, where success is below ``solved``; else 0.

    A run that is there from its first steps on has no healthy level to fall from, so no signal tells of it.
    """
    if not history or not (history[-1].get("rollout/success") or 0.0) < settings.solved:
        return 0
    spread = [row.get("rollout/return_std_max") for row in reversed(history)]
    return next((count for count, value in enumerate(spread) if value != 0), len(spread))


class _Curve:
    """A metric's ``levels`` (T, 3) at each step and the two before; ``healthy`` (T, 1), the mean of all values before the
    windows of these, and its ``noise``, c σ √(1/w + 1/n): how far chance alone may take a level.
    """

    def __init__(self, values: Floats, settings: TrapSettings) -> None:
        self.drop, window = settings.drop, settings.window
        self.levels = last(smoothed(values, window, least=window), PATIENCE)
        known = ~np.isnan(values)
        origin = values[known.argmax()] if known.any() else 0.0  # sums of differences: exact where nothing changes
        apart = np.where(known, values - origin, 0.0)
        parts = known.astype(np.float64), apart, apart**2
        count, total, squares = (_before(window + PATIENCE - 1, part)[:, None] for part in parts)
        count[count < window] = math.nan
        self.healthy: Floats = origin + total / count
        variance = np.maximum(squares / count - (total / count) ** 2, 0) * count / (count - 1)
        self.noise: Floats = _errors(count) * np.sqrt(variance * (1 / window + 1 / count))

    def fallen(self, explained: Floats | float = 1.0, *, where: Bools | bool = True) -> Bools:
        """Where all levels lie below the healthy one times ``explained``, and ``where`` holds, (T,); NaN lies nowhere."""
        healthy = self.healthy * explained
        low = (self.levels < self.drop * healthy) & (healthy - self.levels > self.noise * explained)
        fallen: Bools = np.logical_and.reduce(low & where, axis=1)
        return fallen


def _errors(count: Floats) -> Floats:
    """The standard errors c by which a level must have fallen, for each number of healthy steps (2 or more; or NaN)."""
    errors = np.full(count.shape, CERTAINTY)
    for n in np.unique(count[count < FEW]):
        errors[count == n] = t_quantile(math.erf(CERTAINTY / math.sqrt(2)), int(n) - 1)
    return errors


def _falls(history: Sequence[Mapping[str, float | None]], settings: TrapSettings) -> tuple[Bools, Bools, Bools]:
    """Where each of ``WATCHED`` has fallen without an excuse, (T,) each."""
    mean = _Curve(_column(history, "rollout/return_mean"), settings)
    best = np.fmax.accumulate(_column(history, "rollout/return_max"))[:, None]
    room, room_before = np.maximum(best - mean.levels, 0), np.maximum(best - mean.healthy, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.fmin(1.0, np.sqrt(room / room_before))
    std = _Curve(_column(history, "rollout/return_std"), settings).fallen(explained)
    idle = mean.levels < mean.healthy
    entropy = _Curve(_column(history, "rollout/entropy"), settings).fallen(where=idle)
    distance = _Curve(1 - _column(history, "rollout/self_similarity"), settings).fallen(where=idle)
    return std, entropy, distance


def _peaks(norms: Floats, settings: TrapSettings) -> Bools:
    """Where a gradient norm stands out from all earlier ones, (T,)."""
    highest = last(np.fmax.accumulate(norms), 2)[:, 0]
    peaks: Bools = spikes(norms, settings.spike, least=2 * settings.window) & (norms > highest)
    return peaks


def _before(steps: int, values: Floats) -> Floats:
    """Sum of the values up to ``steps`` ago, (T,)."""
    return np.concatenate([np.zeros(steps), np.cumsum(values)])[: len(values)]


def _first(flags: Bools) -> int | None:
    return int(flags.argmax()) if flags.any() else None


def _column(history: Sequence[Mapping[str, float | None]], name: str) -> Floats:
    """A metric over the steps (T,), NaN where it is not recorded."""
    return curve([row.get(name) for row in history])
