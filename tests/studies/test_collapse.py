"""Falls, rises and spikes, by hand and by definition."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.metrics.curves import curve, smoothed
from ragen.studies.collapse import fall_step, rise_step, spike_step

CURVES = st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=30)


def by_definition(values, share, window):
    """The first t ≥ ``window`` with s_u < share · max_{window ≤ v ≤ u} s_v for all u ≥ t, if as many steps are left."""
    s, begin = smoothed(curve(values), window), window - 1
    for t in range(begin, len(s) - window + 1):
        if all(not math.isnan(s[u]) and s[u] < share * np.nanmax(s[begin : u + 1]) for u in range(t, len(s))):
            return t + 1
    return None


@given(CURVES, st.sampled_from([1, 2, 5]), st.sampled_from([0.25, 0.5, 0.9]))
def test_a_fall_is_what_its_definition_says(values, window, share):
    assert fall_step(values, share=share, window=window) == by_definition(values, share, window)


@given(CURVES.filter(len), st.sampled_from([0.5, 2.0, 8.0]))
def test_a_fall_does_not_depend_on_the_unit(values, factor):
    scaled = [None if value is None else factor * value for value in values]
    assert fall_step(scaled) == fall_step(values)


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([1.0] * 6 + [0.0] * 6, 8),  # (1+0)/2 is not below half, (0+0)/2 is
        ([0.2, 0.4, 0.8, 1.0, 1.0, 0.1, 0.1, 0.1], 7),
        ([1.0, 0.0, 0.0, 0.0, 1.0, 1.0], None),  # it comes back
        ([1.0] * 6 + [0.0, 0.0], None),  # shown by one step only
        ([0.0] * 8, None),  # nothing to fall from
        ([0.87] + [0.3] * 8, None),  # one lucky first step is no height: it was a collapse at step 3
        ([0.1, 0.5, 0.9], None),
        ([], None),
    ],
)
def test_falls_by_hand(values, step):
    assert fall_step(values, window=2) == step


@pytest.mark.parametrize(
    ("values", "level", "step"),
    [
        ([0.0, 1.0, 1.0], 0.5, 2),
        ([0.0, 1.0, 1.0], 0.6, 3),
        ([1.0, 0.0, 0.0], 0.6, None),
        ([1.0], 0.5, None),
        ([], 0.5, None),
    ],
)
def test_rises_by_hand(values, level, step):
    assert rise_step(values, level, window=2) == step


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0, 5.0, 5.1], 7),  # five times is not more than five times
        ([1.0, 9.0], None),  # too little before it
        ([1.0, None, 1.0, 1.0, 1.0, 6.0], None),  # four known values before it
        ([1.0, None, 1.0, 1.0, 1.0, 1.0, 6.0], 7),
        ([], None),
    ],
)
def test_spikes_by_hand(values, step):
    assert spike_step(values) == step


def test_a_spike_is_measured_against_the_recent_past():
    assert spike_step([10.0] * 5 + [1.0] * 20 + [6.0]) == 26
