"""When a curve of a finished run broke down: pure functions of one value a step, each with its definition.

They look back over a whole run; the alarm of a run that goes on, from the same smoothing and spikes, is
``ragen.metrics.echo_trap``.
"""

from collections.abc import Sequence

import numpy as np

from ragen.metrics.curves import SHARE, WINDOW, curve, smoothed, spikes

HISTORY = 20  # steps that a spike is measured against


def fall_step(values: Sequence[float | None], *, share: float = SHARE, window: int = WINDOW) -> int | None:
    """The step (1, 2, …) from which a non-negative curve stays below ``share`` of the most it had reached, or None.

    With s the smoothed curve from step ``window`` on (before, it is a mean of fewer steps: one lucky first step would be
    what the rest has fallen from) and M_t = max_{u ≤ t} s_u, it is the first t with s_u < share · M_u for all u ≥ t, and
    at least ``window`` steps must show it, so that a dip at the end is no fall. A curve that comes back has not fallen.
    """
    s = smoothed(curve(values), window)[window - 1 :]
    with np.errstate(invalid="ignore"):
        low = s < share * np.fmax.accumulate(s) if s.size else np.zeros(0, dtype=bool)
    up = np.flatnonzero(~low)
    first = int(up[-1]) + 1 if up.size else 0
    return window + first if low.size - first >= window else None


def rise_step(values: Sequence[float | None], level: float, *, window: int = WINDOW) -> int | None:
    """The first step (from ``window`` on) at which the smoothed curve reaches ``level``, or None.

    min { t ≥ window : s_t ≥ level }.
    """
    s = smoothed(curve(values), window)
    reached = np.flatnonzero(s[window - 1 :] >= level)
    return int(reached[0]) + window if reached.size else None


def spike_step(values: Sequence[float | None]) -> int | None:
    """The first step at which the curve spikes, or None: min { t : x_t > 5 · median(x_{t−20}, …, x_{t−1}) }."""
    found = np.flatnonzero(spikes(curve(values), history=HISTORY))
    return int(found[0]) + 1 if found.size else None
