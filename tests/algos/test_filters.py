"""Which groups train."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ragen.algos.filters import filters, group_stats, group_uncertainty, select_groups
from ragen.algos.uncertainty import Members, filter_metrics
from ragen.errors import ConfigError

Floats = NDArray[np.float64]

VALUES = {"none": 1.0, "top_fraction": 0.5, "top_p": 0.7, "top_k": 3, "min_p": 0.4, "soft": 1.0}


def kept(stats: list[float], strategy: str, value: float = 1.0, flat: list[bool] | None = None) -> list[int]:
    marks = np.array(flat if flat is not None else [s == 0 for s in stats], dtype=np.bool_)
    return select_groups(np.array(stats, dtype=np.float64), marks, strategy=strategy, value=value).kept.tolist()


def test_every_registered_filter_has_a_value_in_this_suite() -> None:
    assert set(filters.names()) == set(VALUES)


def test_group_stats_by_hand() -> None:
    stats = group_stats(
        [np.array([0.0, 0, 1, 1]), np.array([0.35] * 7), np.array([2.0]), np.array([]), np.array([1.0, 4.0])]
    )
    assert stats.std.tolist() == pytest.approx([math.sqrt(1 / 3), 0.0, 0.0, 0.0, 3 / math.sqrt(2)])
    assert stats.flat.tolist() == [False, True, True, True, False]


def members(returns: list[float], entropies: list[float], lengths: list[float]) -> Members:
    return Members(np.array(returns), np.array(entropies), np.array(lengths))


def test_every_metric_by_hand() -> None:
    group = members([0.0, 1.0, 1.0], [0.5, 0.5, 2.0], [3.0, 5.0, 10.0])
    wanted = {
        "std": math.sqrt(1 / 3),
        "entropy": 1.0,
        "entropy_std": math.sqrt(0.75),  # deviations −½, −½, 1: sum of squares 1.5, over 2
        "length": 6.0,
        "length_std": math.sqrt(13),  # deviations −3, −1, 4: sum of squares 26, over 2
    }
    assert set(wanted) == set(filter_metrics.names())
    for metric, value in wanted.items():
        assert group_uncertainty([group], metric).std.tolist() == pytest.approx([value])


def test_flatness_is_that_of_the_returns_whatever_the_metric() -> None:
    unsure_but_flat = members([1.0, 1.0], [3.0, 1.0], [9.0, 7.0])
    sure_but_live = members([0.0, 1.0], [0.1, 0.1], [2.0, 2.0])
    for metric in filter_metrics.names():
        stats, flat = group_uncertainty([unsure_but_flat, sure_but_live], metric)
        assert flat.tolist() == [True, False]
        assert select_groups(stats, flat, strategy="top_k", value=1).kept.tolist() == [1]
        if metric != "std":
            assert stats[0] > stats[1]  # it would be the one, were it not flat


def test_an_unknown_metric_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'entropy'"):
        group_uncertainty([], "entrpy")


def test_b4_b5_flat_is_exact_and_never_a_threshold() -> None:
    stats = group_stats([np.full(8, 0.1), np.array([0.1] * 7 + [0.1 + 1e-12])])
    assert stats.flat.tolist() == [True, False]
    assert stats.std[0] == 0.0  # np.std of eight times 0.1 leaves 1e-17
    std, flat = stats
    assert select_groups(std, flat, strategy="top_fraction", value=0.5).kept.tolist() == [1]


def test_b32_top_fraction_of_29_percent_of_100_is_29() -> None:
    stats = [float(i + 1) for i in range(100)]
    assert kept(stats, "top_fraction", 0.29) == list(range(71, 100))


@pytest.mark.parametrize("groups", range(1, 41))
def test_b32_top_fraction_counts_like_exact_arithmetic(groups: int) -> None:
    for percent in range(1, 100):
        exact = -(-percent * groups // 100)  # ⌈percent · groups / 100⌉ in integers
        assert len(kept([1.0] * groups, "top_fraction", percent / 100)) == exact


def test_the_papers_quarter_of_eight_groups_is_the_two_most_uncertain() -> None:
    assert kept([0.1, 0.5, 0.0, 0.3, 0.2, 0.6, 0.0, 0.1], "top_fraction", 0.25) == [1, 5]


def test_b32_top_p_does_not_depend_on_the_scale_of_rewards() -> None:
    for scale in (1.0, 1e-2, 1e-8, 1e6):
        assert kept([0.5 * scale, 0.5 * scale], "top_p", 0.9) == [0, 1]
        assert kept([0.5 * scale, 0.3 * scale, 0.2 * scale], "top_p", 0.8) == [0, 1]
        assert kept([0.2 * scale, 0.3 * scale, 0.5 * scale], "top_p", 0.5) == [2]


def test_b32_a_share_of_one_keeps_all_flat_groups_included() -> None:
    for strategy in ("none", "top_fraction", "top_p"):
        assert kept([0.0, 0.2, 0.0], strategy, 1.0) == [0, 1, 2]
    assert kept([0.0, 0.2, 0.0], "top_k", 3) == [0, 1, 2]
    assert kept([0.0, 0.2, 0.0], "top_k", 2) == [1]


def test_b32_any_ratio_keeps_a_live_group() -> None:
    for strategy, value in (("top_fraction", 1e-6), ("top_p", 1e-6), ("top_k", 1), ("min_p", 1.0)):
        assert kept([0.0, 1e-9, 0.0], strategy, value) == [1]


def test_b32_ties_go_to_the_lower_index() -> None:
    assert kept([0.5, 0.7, 0.5, 0.5], "top_k", 2) == [0, 1]
    assert kept([0.5, 0.5, 0.5, 0.5], "top_fraction", 0.5) == [0, 1]
    assert kept([0.5, 0.5, 0.5, 0.5], "top_p", 0.75) == [0, 1, 2]
    assert kept([0.5, 0.7] * 200, "top_k", 300) == sorted([*range(1, 400, 2), *range(0, 200, 2)])


def test_min_p_is_a_share_of_the_highest() -> None:
    assert kept([1.0, 0.3, 0.29, 0.0], "min_p", 0.3) == [0, 1]
    assert kept([0.1, 0.03, 0.029], "min_p", 0.3) == [0, 1]
    assert kept([3.0, 0.3], "min_p", 0.1) == [0, 1]  # 0.1 · 3 is 0.30000000000000004


@pytest.mark.parametrize("groups", range(2, 41))
@pytest.mark.parametrize("std", [0.1, 0.3, 0.7])
def test_b32_top_p_counts_equal_groups_like_exact_arithmetic(groups: int, std: float) -> None:
    for count in range(1, groups):
        assert len(kept([std] * groups, "top_p", count / groups)) == count


def test_soft_weights_are_shares_of_the_highest_and_all_groups_stay() -> None:
    chosen = select_groups(np.array([0.2, 0.0, 0.4]), np.array([False, True, False]), strategy="soft")
    assert chosen.kept.tolist() == [0, 1, 2]
    assert chosen.weights.tolist() == [0.5, 0.0, 1.0]
    assert chosen.flat.tolist() == [False, True, False]


@pytest.mark.parametrize("strategy", sorted(VALUES))
def test_b32_a_live_group_stays_where_the_metric_is_0_for_all(strategy: str) -> None:
    """As with ``entropy_std`` or ``length_std``: returns differ where entropies or lengths do not."""
    chosen = select_groups(np.zeros(3), np.array([True, False, False]), strategy=strategy, value=VALUES[strategy])
    assert chosen.weights[chosen.kept.tolist().index(1)] == 1
    if strategy == "soft":
        assert (chosen.kept.tolist(), chosen.weights.tolist()) == ([0, 1, 2], [0.0, 1.0, 1.0])


def test_weights_are_those_of_the_kept_groups() -> None:
    chosen = select_groups(np.array([0.2, 0.1, 0.4]), np.zeros(3, dtype=np.bool_), strategy="top_k", value=2)
    assert (chosen.kept.tolist(), chosen.weights.tolist()) == ([0, 2], [1.0, 1.0])


@pytest.mark.parametrize("strategy", sorted(set(VALUES) - {"none"}))
def test_b31_nothing_is_kept_where_every_group_is_flat(strategy: str) -> None:
    chosen = select_groups(np.zeros(8), np.ones(8, dtype=np.bool_), strategy=strategy, value=VALUES[strategy])
    assert (chosen.kept.tolist(), chosen.weights.tolist()) == ([], [])


def test_impossible_values_are_refused_with_what_is_allowed() -> None:
    for strategy, value in (("top_fraction", 1.5), ("top_fraction", 0.0), ("top_p", -1.0), ("min_p", 2.0)):
        with pytest.raises(ConfigError, match=rf"filter.value is {value}: '{strategy}' takes a share in \(0, 1\]"):
            kept([1.0, 2.0], strategy, value)
    for value in (0, 1.5):
        with pytest.raises(ConfigError, match="'top_k' takes a number of groups"):
            kept([1.0, 2.0], "top_k", value)
    with pytest.raises(ConfigError, match="did you mean 'top_p'"):
        kept([1.0], "topp", 0.5)
    with pytest.raises(ValueError, match="finite"):
        kept([1.0, math.nan], "top_k", 1)
    with pytest.raises(ValueError, match="shape"):
        select_groups(np.ones(2), np.zeros(3, dtype=np.bool_), strategy="none")


uncertainties = st.lists(st.integers(0, 1000).map(lambda i: i / 8), min_size=1, max_size=12)


@given(stats=uncertainties, strategy=st.sampled_from(sorted(VALUES)), power=st.integers(-20, 20), factor=st.floats(0.1, 10))
def test_selection_does_not_depend_on_scale(stats: list[float], strategy: str, power: int, factor: float) -> None:
    scaled = [s * factor * 2.0**power for s in stats]
    assert kept(scaled, strategy, VALUES[strategy]) == kept(stats, strategy, VALUES[strategy])


@given(
    returns=st.lists(st.lists(st.integers(-8, 8), min_size=1, max_size=5), min_size=1, max_size=8),
    shift=st.integers(-50, 50),
)
def test_selection_by_std_does_not_depend_on_a_shift_of_returns(returns: list[list[int]], shift: int) -> None:
    one = group_stats([np.array(r, dtype=np.float64) for r in returns])
    two = group_stats([np.array(r, dtype=np.float64) + shift for r in returns])
    assert one.flat.tolist() == two.flat.tolist()
    np.testing.assert_allclose(one.std, two.std, atol=1e-9)


@given(data=st.data(), stats=st.lists(st.integers(0, 10_000), min_size=1, max_size=10, unique=True))
def test_selection_follows_its_groups_when_they_are_reordered(data: st.DataObject, stats: list[int]) -> None:
    order = data.draw(st.permutations(range(len(stats))))
    for strategy, value in VALUES.items():
        straight = {stats[i] for i in kept([float(s) for s in stats], strategy, value)}
        mixed = [stats[i] for i in order]
        assert {mixed[i] for i in kept([float(s) for s in mixed], strategy, value)} == straight


@given(stats=uncertainties, strategy=st.sampled_from(sorted(VALUES)))
def test_kept_groups_are_never_less_uncertain_than_dropped_ones(stats: list[float], strategy: str) -> None:
    chosen = set(kept(stats, strategy, VALUES[strategy]))
    dropped = [s for i, s in enumerate(stats) if i not in chosen]
    assert not chosen or not dropped or min(stats[i] for i in chosen) >= max(dropped)
    if any(stats):
        assert chosen
