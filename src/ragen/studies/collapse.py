"""When a curve breaks down: pure functions of one value a step, each with its definition."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

WINDOW = 5
SHARE = 0.5
SPIKE = 5.0
HISTORY = 20


def smoothed(values: Sequence[float | None], window: int = WINDOW) -> NDArray[np.float64]:
    """Mean of the last ``window`` values (fewer at the beginning) at each of the T steps; (T,). Missing values are left out.

    s_t = mean of x_u over u in (t − window, t] where x_u is known; NaN where none is.
    """
    known = np.asarray([np.nan if value is None else value for value in values], dtype=np.float64)
    out = np.full(known.shape, np.nan)
    for t in range(known.size):
        recent = known[max(0, t - window + 1) : t + 1]
        recent = recent[~np.isnan(recent)]
        if recent.size:
            out[t] = recent.mean()
    return out


def fall_step(values: Sequence[float | None], *, share: float = SHARE, window: int = WINDOW) -> int | None:
    """The step (1, 2, …) from which a non-negative curve stays below ``share`` of the most it had reached, or None.

    With s the smoothed curve and M_t = max_{u ≤ t} s_u, it is the first t with s_u < share · M_u for all u ≥ t, and
    at least ``window`` steps must show it, so that a dip at the end is no fall. A curve that comes back has not fallen.
    """
    s = smoothed(values, window)
    with np.errstate(invalid="ignore"):
        low = s < share * np.fmax.accumulate(s) if s.size else np.zeros(0, dtype=bool)
    up = np.flatnonzero(~low)
    first = int(up[-1]) + 1 if up.size else 0
    return first + 1 if low.size - first >= window else None


def rise_step(values: Sequence[float | None], level: float, *, window: int = WINDOW) -> int | None:
    """The first step (from ``window`` on) at which the smoothed curve reaches ``level``, or None.

    min { t ≥ window : s_t ≥ level }.
    """
    s = smoothed(values, window)
    reached = np.flatnonzero(s[window - 1 :] >= level)
    return int(reached[0]) + window if reached.size else None


def spike_step(values: Sequence[float | None], *, factor: float = SPIKE, history: int = HISTORY) -> int | None:
    """The first step whose value exceeds ``factor`` times the median of those before it, or None.

    min { t : x_t > factor · median(x_{t−history}, …, x_{t−1}) }, with at least ``WINDOW`` known values before it.
    """
    known = [np.nan if value is None else float(value) for value in values]
    for t, value in enumerate(known):
        before = [x for x in known[max(0, t - history) : t] if not np.isnan(x)]
        if len(before) >= WINDOW and value > factor * float(np.median(before)):
            return t + 1
    return None
