"""The interval of a success rate: never narrower than what the number of instances allows."""

import math

import pytest

from ragen.metrics.evaluation import rate_interval
from ragen.metrics.intervals import wilson


@pytest.mark.parametrize("samples", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 2, 10, 128])
@pytest.mark.parametrize("wins", ["none", "half", "all"])
def test_instances_that_do_not_differ_have_the_interval_of_as_many_single_trials(samples, n, wins):
    won = {"none": 0, "half": samples // 2, "all": samples}[wins]
    interval, method = rate_interval([(True,) * won + (False,) * (samples - won)] * n)
    assert interval == pytest.approx(wilson(won / samples * n, n))
    assert interval[1] - interval[0] > 0
    assert "Wilson" in method


def test_one_sample_each_is_wilson_and_several_that_differ_are_a_bootstrap():
    outcomes = [(i % 3 == 0,) for i in range(30)]
    assert rate_interval(outcomes) == (wilson(10, 30), "Wilson over instances")
    interval, method = rate_interval([(i % 3 == 0, i % 2 == 0) for i in range(30)])
    assert all(math.isfinite(end) for end in interval)
    assert interval[0] < interval[1]
    assert "bootstrap" in method


def test_no_instance_says_nothing():
    assert rate_interval([])[0] == (0.0, 1.0)
