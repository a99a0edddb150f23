"""Smoothing and spikes, by hand and by definition."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.metrics.curves import curve, last, smoothed, spikes

NORMS = st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=30)


def test_smoothing_is_the_mean_of_the_last_known_values() -> None:
    gap = curve([4.0, None, 8.0, 0.0])
    assert smoothed(gap, 2).tolist() == [4.0, 4.0, 8.0, 4.0]
    assert np.isnan(smoothed(curve([None, 1.0]), 2)).tolist() == [True, False]
    assert smoothed(curve([]), 2).shape == (0,)
    whole = smoothed(gap, 2, least=2)  # only windows without a gap
    assert np.isnan(whole).tolist() == [True, True, True, False]
    assert whole[3] == 4.0


@given(NORMS, st.integers(1, 6), st.integers(1, 6))
def test_smoothing_is_what_its_definition_says(values: list[float | None], window: int, least: int) -> None:
    found = smoothed(curve(values), window, least=min(least, window))
    for t in range(len(values)):
        known = [x for x in values[max(0, t - window + 1) : t + 1] if x is not None]
        if len(known) < min(least, window):
            assert math.isnan(found[t])
        else:
            assert found[t] == pytest.approx(sum(known) / len(known), abs=1e-12)


@given(st.floats(1e-3, 1e3), st.integers(1, 12))
def test_equal_values_have_exactly_their_value_as_mean(value: float, window: int) -> None:
    assert set(smoothed(curve([value] * 15), window).tolist()) == {value}


@given(NORMS, st.sampled_from([None, 1, 4, 20]), st.sampled_from([1, 3, 5]))
def test_spikes_are_what_their_definition_says(values: list[float | None], history: Any, least: int) -> None:
    found = spikes(curve(values), 2.0, history=history, least=least)
    for t, value in enumerate(values):
        first = 0 if history is None else max(0, t - history)
        before = [x for x in values[first:t] if x is not None]
        assert found[t] == (value is not None and len(before) >= least and value > 2.0 * float(np.median(before)))


def test_the_last_values_of_each_step() -> None:
    assert np.nan_to_num(last(curve([1.0, 2.0, 3.0]), 2), nan=-1).tolist() == [[-1, 1], [1, 2], [2, 3]]
    assert last(curve([]), 4).shape == (0, 4)
