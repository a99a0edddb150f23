"""A run's curve, one value a step: smoothed, and where it spikes. The detector and the studies read curves by these."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

WINDOW = 5  # steps that a curve is smoothed over
SHARE = 0.5  # of what a curve had reached: below that it has fallen
SPIKE = 5.0  # times the median of what came before
LEAST = 5  # known values that a median needs


def curve(values: Sequence[float | None]) -> Floats:
    """The values of the T steps as an array (T,), NaN where one is missing."""
    return np.array([math.nan if value is None else value for value in values], dtype=np.float64)


def smoothed(values: Floats, window: int = WINDOW, *, least: int = 1) -> Floats:
    """Mean of the last ``window`` values at each of the T steps, (T,); missing values (NaN) are left out.

    s_t = mean of x_u over u in (t − window, t] where x_u is known; NaN where fewer than ``least`` are, so that with
    ``least`` = ``window`` only whole windows count. Equal values have exactly their value as mean.
    """
    recent = last(values, window)
    known = ~np.isnan(recent)
    count = known.sum(axis=1)
    most = np.fmax.reduce(recent, axis=1)
    apart = np.where(known, recent - most[:, None], 0.0).sum(axis=1)
    return np.where(count >= max(1, least), most + apart / np.maximum(count, 1), math.nan)


def spikes(values: Floats, factor: float = SPIKE, *, history: int | None = None, least: int = LEAST) -> Bools:
    """Where a value exceeds ``factor`` times the median of those before it, (T,): of the last ``history`` steps (None: all).

    x_t > factor · median { x_u : t − history ≤ u < t, x_u known }, with at least ``least`` known values there.
    """
    found = np.zeros(len(values), dtype=np.bool_)
    for t in range(len(values)):
        before = values[0 if history is None else max(0, t - history) : t]
        before = before[~np.isnan(before)]
        found[t] = before.size >= least and values[t] > factor * np.median(before)
    return found


def last(values: Floats, size: int) -> Floats:
    """The last ``size`` values at each step, (T, size), NaN before the first."""
    return sliding_window_view(np.concatenate([np.full(size, math.nan), values]), size)[1:]
