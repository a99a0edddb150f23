"""Mutual information and retrieval on matrices whose values are known."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragen.metrics.information import mutual_information, retrieval_accuracy


def test_by_hand() -> None:
    """π(r | x): 3/4 and 1/4 for the first reasoning, 1/8 and 1/2 for the second."""
    table = np.log([[3 / 4, 1 / 4], [1 / 8, 1 / 2]])
    expected = (math.log((3 / 4) / (1 / 2)) + math.log((1 / 2) / (5 / 16))) / 2
    assert mutual_information(table, [0, 1]) == pytest.approx(expected)
    assert mutual_information(table, [1, 0]) == pytest.approx((math.log(1 / 2) + math.log((1 / 8) / (5 / 16))) / 2)
    assert retrieval_accuracy(table, [0, 1]) == 1.0
    assert retrieval_accuracy(table, [0, 0]) == 0.5


def test_a_reasoning_that_fits_every_prompt_carries_nothing_and_is_found_by_chance() -> None:
    table = np.repeat([[-3.0], [-700.0]], 4, axis=1)  # exp(-700) is nothing in float32
    assert mutual_information(table, [0, 3]) == pytest.approx(0.0, abs=1e-12)
    assert retrieval_accuracy(table, [0, 3]) == 1 / 4


def test_a_reasoning_that_only_its_own_prompt_gives_carries_log_p() -> None:
    table = np.full((5, 5), -1000.0)
    np.fill_diagonal(table, -30.0)
    assert mutual_information(table, range(5)) == pytest.approx(math.log(5))
    assert retrieval_accuracy(table, range(5)) == 1.0


def test_ties_share() -> None:
    assert retrieval_accuracy([[-1.0, -1.0, -2.0]], [0]) == 1 / 2
    assert retrieval_accuracy([[-1.0, -1.0, -2.0]], [2]) == 0.0


def test_nothing_to_measure_and_wrong_shapes() -> None:
    assert math.isnan(mutual_information(np.zeros((0, 3)), []))
    assert math.isnan(retrieval_accuracy(np.zeros((0, 3)), []))
    for table, own in (([[0.0]], [0, 0]), ([0.0], [0]), (np.zeros((1, 0)), [0])):
        with pytest.raises(ValueError, match="N, P"):
            mutual_information(table, own)


@given(arrays(np.float64, (4, 3), elements=st.floats(-50, 0)), st.lists(st.integers(0, 2), min_size=4, max_size=4))
def test_bounds_and_what_does_not_matter(table: np.ndarray, own: list[int]) -> None:
    information = mutual_information(table, own)
    assert information <= math.log(3) + 1e-9
    shifted = table + np.array([[-5.0], [0.0], [2.0], [7.0]])  # longer reasonings are less likely under every prompt
    assert mutual_information(shifted, own) == pytest.approx(information, abs=1e-9)
    order = [2, 0, 1]
    moved = [order.index(o) for o in own]
    assert mutual_information(table[:, order], moved) == pytest.approx(information, abs=1e-9)
    assert retrieval_accuracy(table[:, order], moved) == pytest.approx(retrieval_accuracy(table, own))
