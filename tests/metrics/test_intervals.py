"""Confidence intervals against tables, enumeration and coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.metrics.intervals import cluster_bootstrap, mean_interval, paired_bootstrap, t_quantile, wilson


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        (10, 20, 0.2993, 0.7007),
        (8, 10, 0.4902, 0.9433),
        (0, 10, 0.0, 0.2775),
        (10, 10, 0.7225, 1.0),
        (54, 256, 0.1655, 0.2650),  # the paper's 21.09 %: ± 5 points
        (0, 0, 0.0, 1.0),
    ],
)
def test_wilson_against_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes, n) == pytest.approx((low, high), abs=1e-4)


@given(n=st.integers(1, 500), share=st.floats(0, 1))
def test_wilson_ends_solve_the_score_equation(n: int, share: float) -> None:
    successes = round(share * n)
    z = 1.6448536269514722  # 90 %
    for end in wilson(successes, n, 0.9):
        assert 0 <= end <= 1
        if 0 < end < 1:
            assert (successes / n - end) ** 2 == pytest.approx(z * z * end * (1 - end) / n, rel=1e-6, abs=1e-12)


def test_wilson_covers_near_its_level() -> None:
    n = 100
    for p in (0.1, 0.3, 0.5, 0.9):
        inside = [k for k in range(n + 1) if wilson(k, n)[0] <= p <= wilson(k, n)[1]]
        coverage = sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in inside)
        assert 0.93 < coverage < 0.97


def test_wilson_refuses_impossible_counts() -> None:
    for successes, n in ((-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="between 0 and n"):
            wilson(successes, n)
    with pytest.raises(ValueError, match="confidence"):
        wilson(1, 2, 95)


@pytest.mark.parametrize(
    ("confidence", "freedom", "expected"),
    [
        (0.95, 1, 12.7062),
        (0.95, 2, 4.30265),
        (0.95, 5, 2.57058),
        (0.95, 30, 2.04227),
        (0.95, 120, 1.97993),
        (0.99, 3, 5.84091),
        (0.999, 1, 636.619),
        (0.95, 100_000, 1.95999),
    ],
)
def test_t_quantiles_against_the_tables(confidence: float, freedom: int, expected: float) -> None:
    assert t_quantile(confidence, freedom) == pytest.approx(expected, rel=2e-5)


def test_mean_interval_by_hand() -> None:
    # 1, 2, 3: mean 2, s = 1, t_2 = 4.30265
    assert mean_interval([1, 2, 3]) == pytest.approx((2 - 4.30265 / math.sqrt(3), 2 + 4.30265 / math.sqrt(3)), rel=1e-5)
    assert mean_interval([0.5]) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])


def test_bootstrap_of_three_clusters_spans_all_of_them() -> None:
    # the expanded tail of three clusters is 7e-8: the interval is the range of what can be drawn
    assert cluster_bootstrap([0, 1, 1, 2], ["a", "b", "b", "c"]) == (0.0, 2.0)


def test_bootstrap_of_many_clusters_approaches_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(size=400)
    half = 1.96 * values.std(ddof=1) / 20
    expected = (values.mean() - half, values.mean() + half)
    assert cluster_bootstrap(values, np.arange(400)) == pytest.approx(expected, abs=0.1 * half)


def test_bootstrap_is_the_same_for_the_same_seed_and_any_order() -> None:
    rng = np.random.default_rng(1)
    values, clusters = rng.normal(size=60), np.repeat(np.arange(20), 3)
    order = rng.permutation(60)
    one = cluster_bootstrap(values, clusters, seed=3)
    assert cluster_bootstrap(values, clusters, seed=3) == one
    assert cluster_bootstrap(values[order], clusters[order], seed=3) == pytest.approx(one, abs=1e-12)
    assert cluster_bootstrap(values, clusters, seed=4) != one


def test_equal_copies_of_an_episode_add_no_certainty() -> None:
    values = np.random.default_rng(2).normal(size=50)
    single = cluster_bootstrap(values, np.arange(50))
    assert cluster_bootstrap(np.repeat(values, 8), np.repeat(np.arange(50), 8)) == pytest.approx(single, abs=1e-12)
    naive = cluster_bootstrap(np.repeat(values, 8), np.arange(400))
    assert naive[1] - naive[0] < 0.5 * (single[1] - single[0])


def test_bootstrap_covers_near_its_level_with_few_clusters() -> None:
    rng = np.random.default_rng(5)
    hits = 0
    for trial in range(300):
        values = (rng.normal(size=(8, 1)) + 0.3 * rng.normal(size=(8, 4))).ravel()
        low, high = cluster_bootstrap(values, np.repeat(np.arange(8), 4), resamples=400, seed=trial)
        hits += low <= 0 <= high
    assert 0.91 < hits / 300 < 0.99  # a plain percentile interval covers 0.86 of these


def test_bootstrap_of_one_cluster_says_nothing() -> None:
    assert cluster_bootstrap([0.0, 1.0], [7, 7]) == (-math.inf, math.inf)


def test_bootstrap_refuses_what_does_not_match() -> None:
    with pytest.raises(ValueError, match="values and clusters"):
        cluster_bootstrap([1.0, 2.0], [0])
    with pytest.raises(ValueError, match="values and clusters"):
        cluster_bootstrap([], [])


def test_paired_interval_cancels_what_instances_share() -> None:
    rng = np.random.default_rng(3)
    instance = rng.normal(size=100) * 10
    first, second = instance + rng.normal(size=100) * 0.1, instance + 0.5 + rng.normal(size=100) * 0.1
    low, high = paired_bootstrap(first, second)
    assert 0.45 < low < 0.5 < high < 0.55
    assert paired_bootstrap(second, first) == pytest.approx((-high, -low), abs=0.01)
    assert paired_bootstrap(first, first) == (0.0, 0.0)
    with pytest.raises(ValueError, match="same instances"):
        paired_bootstrap(first, second[:50])
