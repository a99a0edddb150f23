"""The Echo Trap, read off a run's metrics: early warning, gradient spike, collapse (arXiv 2504.20073, findings F1 and F2).

The paper: in-group reward std and entropy move before the mean return does, replies come to repeat one wording, and a spike
of the gradient norm marks the point from which a run does not come back; a healthy entropy falls smoothly. It gives no rule;
the one below is ours. It is a function of the metrics recorded so far, so a resumed run sees what an unbroken one sees.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

PATIENCE = 3  # steps in a row for which a fall must hold
CERTAINTY = 3.0  # standard errors by which a level must have fallen


@dataclass(frozen=True, slots=True)
class TrapSettings:
    """``window``: steps a level is a mean of; ``drop``: the share of the healthy level below which it has fallen; ``spike``:
    multiple of the median gradient norm; ``solved``: success rate from which on falling levels are what success looks like.
    """

    window: int = 5
    drop: float = 0.5
    spike: float = 5.0
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

    **Level**: x̄_t is the mean of x over the last w = ``window`` steps (none where one of them lacks x); the healthy level
    μ_t and spread σ_t are mean and standard deviation of x over all n ≥ w steps before those. **Fallen**: x̄_t < drop · μ_t
    and μ_t − x̄_t > 3 σ_t √(1/w + 1/n), at three steps in a row: a step of few groups is noisy, and how noisy the run's own
    past tells.

    - *reward std*: the in-group std has fallen, beyond what a rising mean explains. Since σ² ≤ (best − m)(m − worst)
      (Bhatia and Davis, 2000), its healthy level and spread are first multiplied by
      min(1, √((best − m̄_t) / (best − μ_t(m)))), m the mean return and best the largest return seen so far.
    - *entropy*, *repetition*: the token entropy, and 1 − self-similarity, have fallen while the mean return is below its own
      healthy level: nothing was bought with them.
    - **warning**: reward std, or entropy and repetition together, while the success rate's level is below ``solved``: where
      everything succeeds all of them fall. Entropy alone gives none: a healthy one falls by any factor.
    - **spike**: a gradient norm of ``spike`` times the median of all earlier ones, or more, larger than each of them; there
      must be 2w of them, and success below ``solved``.
    - **collapsed**: the success rate has fallen.

    Scaling or shifting all rewards by constants (a positive factor), or scaling entropies or gradients, changes nothing. A
    signal once given never moves as the history grows. The earliest warning is at the (2w + 2)-th step.
    """
    if len(history) < 2 * settings.window:
        return NOTHING
    steps = [int(row["step"] or 0) for row in history]
    success = _Curve(_column(history, "rollout/success"), settings)
    unsolved = ~(success.level >= settings.solved)
    fired = dict(zip(WATCHED, _falls(history, settings), strict=True))
    warning = _first((fired["reward std"] | (fired["entropy"] & fired["repetition"])) & unsolved)
    spike = _first(_spikes(_column(history, "update/grad_norm"), settings) & unsolved & ~np.isnan(success.level))
    collapsed = _first(_held(success.fallen()))
    return Signals(
        warning=None if warning is None else steps[warning],
        fired=() if warning is None else tuple(name for name in WATCHED if fired[name][warning]),
        spike=None if spike is None else steps[spike],
        collapsed=None if collapsed is None else steps[collapsed],
    )


class _Curve:
    """A metric's ``level`` (T,) over the last steps; ``healthy``, that of all before, and its ``error``, σ √(1/w + 1/n)."""

    def __init__(self, values: Floats, settings: TrapSettings) -> None:
        self.drop, window = settings.drop, settings.window
        known = ~np.isnan(values)
        origin = values[known.argmax()] if known.any() else 0.0  # sums of differences: exact where nothing changes
        self.level: Floats = origin + _windows(values - origin, window).mean(axis=1)
        apart = np.where(known, values - origin, 0.0)
        count, total, squares = (_before(window, part) for part in (known.astype(np.float64), apart, apart**2))
        count[count < window] = math.nan
        self.healthy: Floats = origin + total / count
        variance = np.maximum(squares / count - (total / count) ** 2, 0) * count / (count - 1)
        self.error: Floats = np.sqrt(variance * (1 / window + 1 / count))

    def fallen(self, explained: Floats | float = 1.0) -> Bools:
        """Where the level lies below the healthy one times ``explained``; a comparison with NaN is False."""
        healthy = self.healthy * explained
        fallen: Bools = (self.level < self.drop * healthy) & (healthy - self.level > CERTAINTY * self.error * explained)
        return fallen


def _falls(history: Sequence[Mapping[str, float | None]], settings: TrapSettings) -> tuple[Bools, Bools, Bools]:
    """Where each of ``WATCHED`` has fallen without an excuse, (T,) each."""
    mean = _Curve(_column(history, "rollout/return_mean"), settings)
    best = np.fmax.accumulate(_column(history, "rollout/return_max"))
    room, room_before = np.maximum(best - mean.level, 0), np.maximum(best - mean.healthy, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        explained = np.fmin(1.0, np.sqrt(room / room_before))
    std = _Curve(_column(history, "rollout/return_std"), settings).fallen(explained)
    idle = mean.level < mean.healthy
    entropy = _Curve(_column(history, "rollout/entropy"), settings).fallen() & idle
    distance = _Curve(1 - _column(history, "rollout/self_similarity"), settings).fallen() & idle
    return _held(std), _held(entropy), _held(distance)


def _spikes(norms: Floats, settings: TrapSettings) -> Bools:
    """Where a gradient norm stands out from all earlier ones, (T,)."""
    spikes = np.zeros(len(norms), dtype=np.bool_)
    for t in np.flatnonzero(norms > np.fmax.accumulate(np.concatenate([[-math.inf], norms[:-1]]))):
        earlier = norms[:t][~np.isnan(norms[:t])]
        spikes[t] = len(earlier) >= 2 * settings.window and norms[t] >= settings.spike * np.median(earlier)
    return spikes


def _held(flags: Bools) -> Bools:
    """Where a flag has been set for PATIENCE steps in a row."""
    held: Bools = (_windows(flags.astype(np.float64), PATIENCE) == 1).all(axis=1)
    return held


def _windows(values: Floats, size: int) -> Floats:
    """The last ``size`` values of each step, (T, size), NaN before the first."""
    return sliding_window_view(np.concatenate([np.full(size - 1, math.nan), values]), size)


def _before(window: int, values: Floats) -> Floats:
    """Sum of the values up to ``window`` steps ago, (T,)."""
    return np.concatenate([np.zeros(window), np.cumsum(values)])[: len(values)]


def _first(flags: Bools) -> int | None:
    return int(flags.argmax()) if flags.any() else None


def _column(history: Sequence[Mapping[str, float | None]], name: str) -> Floats:
    """A metric over the steps (T,), NaN where it is not recorded."""
    return np.array([math.nan if (value := row.get(name)) is None else value for row in history], dtype=np.float64)
