"""Paired comparisons against published values, closed forms and enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.metrics.comparison import compare_reports
from ragen.metrics.evaluation import EvalReport, evaluation_report
from ragen.metrics.intervals import mcnemar, paired_bootstrap, paired_score


def report(model: str, results: dict[int, list[tuple[bool, float]]]) -> EvalReport:
    """An evaluation in which instance i had these (success, return) samples."""

    def trajectory(instance: int, member: int, success: bool, value: float) -> Trajectory:
        turn = Turn((), False, Completion((), (), (), "", StopReason.END), "", (), True, value)
        return Trajectory("e", instance, member, (turn,), EndReason.TERMINATED, success)

    groups = [
        Group(i, tuple(trajectory(i, m, *sample) for m, sample in enumerate(samples))) for i, samples in results.items()
    ]
    counts = {len(samples) for samples in results.values()}
    return evaluation_report(
        groups, env="e", settings={}, model=model, samples=max(counts), temperature=0.0, seed=0, errors=0
    )


def once(*successes: int) -> dict[int, list[tuple[bool, float]]]:
    return {i: [(bool(success), float(success))] for i, success in enumerate(successes)}


def test_the_score_interval_has_its_published_values() -> None:
    # M. W. Fagerland et al., Statistics in Medicine 33 (2014): 21 children, 1 and 7 pairs differ
    assert paired_score(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


@pytest.mark.parametrize("n", [1, 2, 20, 1000])
def test_pairs_that_never_differ_still_leave_a_doubt(n: int) -> None:
    end = 1.959963985**2 / (n + 1.959963985**2)
    assert paired_score(0, 0, n) == pytest.approx((-end, end))
    assert paired_score(n, 0, n)[1] == 1.0
    assert paired_score(0, n, n)[0] == -1.0


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(0, n))))
def test_the_ends_solve_the_score_equation_and_sides_may_be_swapped(case: tuple[int, int, int]) -> None:
    n, wins, losses = case
    if wins + losses > n:
        wins, losses = n - wins, n - losses
    low, high = paired_score(wins, losses, n)
    assert paired_score(losses, wins, n) == pytest.approx((-high, -low))
    assert -1 <= low <= (wins - losses) / n <= high <= 1
    for delta in (low, high):
        if -1 < delta < 1:
            # the likeliest share of losses under the constraint p12 - p21 = delta, by brute force
            grid = np.linspace(max(0.0, -delta), (1 - delta) / 2, 200_001)[1:-1]
            with np.errstate(divide="ignore", invalid="ignore"):
                terms = [(wins, grid + delta), (losses, grid), (n - wins - losses, 1 - 2 * grid - delta)]
                likelihood = sum(count * np.log(share) for count, share in terms if count)
            share = float(grid[np.nanargmax(likelihood)]) if wins or losses else max(0.0, -delta)
            z = (wins - losses - n * delta) / math.sqrt(n * (2 * share + delta * (1 - delta)))
            assert abs(z) == pytest.approx(1.95996, rel=5e-3)


def test_the_score_interval_covers_near_its_level_by_enumeration() -> None:
    n = 20
    for p12, p21 in ((0.1, 0.1), (0.3, 0.1), (0.4, 0.4), (0.2, 0.05)):
        covered = 0.0
        for b, c in itertools.product(range(n + 1), repeat=2):
            if b + c <= n:
                low, high = paired_score(b, c, n)
                ways = math.comb(n, b) * math.comb(n - b, c)
                covered += (low <= p12 - p21 <= high) * ways * p12**b * p21**c * (1 - p12 - p21) ** (n - b - c)
        assert 0.93 < covered < 0.98


def test_mcnemar_is_the_share_of_coin_throws_at_least_as_uneven() -> None:
    for wins, losses in itertools.product(range(7), repeat=2):
        total = wins + losses
        throws = list(itertools.product((0, 1), repeat=total))
        extreme = sum(abs(2 * sum(throw) - total) >= abs(wins - losses) for throw in throws)
        assert mcnemar(wins, losses) == pytest.approx(extreme / len(throws))
    assert mcnemar(1, 7) == pytest.approx(0.0703125)
    assert mcnemar(0, 3000) == 0.0


def test_impossible_counts_are_refused() -> None:
    for wins, losses, n in ((-1, 0, 3), (2, 2, 3)):
        with pytest.raises(ValueError, match="counts of n pairs"):
            paired_score(wins, losses, n)
    assert paired_score(0, 0, 0) == (-1.0, 1.0)


def test_two_evaluations_by_hand() -> None:
    found = compare_reports(report("a", once(1, 0, 0, 1, 0)), report("b", once(1, 1, 1, 0, 0)))
    assert (found.first, found.second, found.n) == ("a", "b", 5)
    assert (found.wins, found.losses, found.ties, found.unpaired) == (2, 1, 2, 0)
    assert found.success_difference == pytest.approx(0.2)
    assert found.success_interval == paired_score(2, 1, 5)
    assert found.p_value == mcnemar(2, 1) == 1.0
    assert found.return_interval == paired_bootstrap([1, 0, 0, 1, 0], [1, 1, 1, 0, 0])
    assert [row.success for row in found.instances] == [(1, 1), (0, 1), (0, 1), (1, 0), (0, 0)]


def test_only_instances_that_both_have_are_compared() -> None:
    one, two = report("a", once(1, 0, 1, 1)), report("b", {1: [(True, 2.0)], 3: [(True, 1.0)], 9: [(False, 0.0)]})
    found = compare_reports(one, two)
    assert [row.instance for row in found.instances] == [1, 3]
    assert (found.n, found.unpaired, found.wins, found.ties) == (2, 3, 1, 1)
    assert found.success_difference == 0.5
    assert found.return_difference == pytest.approx((2.0 + 0.0) / 2)
    with pytest.raises(ValueError, match="no instance in common"):
        compare_reports(one, report("c", {77: [(True, 1.0)]}))


def test_several_samples_are_one_share_an_instance() -> None:
    rng = np.random.default_rng(0)
    first = {i: [(bool(rng.random() < 0.4), 0.0) for _ in range(4)] for i in range(30)}
    second = {i: [(bool(rng.random() < 0.6), 0.0) for _ in range(4)] for i in range(30)}
    found = compare_reports(report("a", first), report("b", second))
    shares = [[np.mean([s for s, _ in rows[i]]) for i in range(30)] for rows in (first, second)]
    assert found.success_interval == paired_bootstrap(*shares)
    assert found.wins + found.losses + found.ties == 30
    assert found.p_value == mcnemar(found.wins, found.losses)
    same = compare_reports(report("a", first), report("b", first))
    assert same.success_interval == paired_score(0, 0, 30)
    assert same.return_interval == (0.0, 0.0)


def test_swapping_the_sides_turns_the_signs() -> None:
    one, two = report("a", once(1, 0, 0, 1, 0, 0)), report("b", once(1, 1, 1, 0, 0, 1))
    there, back = compare_reports(one, two), compare_reports(two, one)
    assert back.success_difference == -there.success_difference
    assert back.success_interval == pytest.approx((-there.success_interval[1], -there.success_interval[0]))
    assert (back.wins, back.losses, back.p_value) == (there.losses, there.wins, there.p_value)


def test_a_report_without_returns_cannot_be_compared() -> None:
    old = EvalReport.from_dict({k: v for k, v in report("a", once(1)).to_dict().items() if k != "returns"})
    with pytest.raises(ValueError, match="no returns by instance"):
        compare_reports(old, old)
