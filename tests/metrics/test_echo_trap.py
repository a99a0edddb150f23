"""The Echo-Trap detector on made-up runs: what it must see, what it must not, and that it never changes its mind."""

import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ragen.metrics.echo_trap import NOTHING, Signals, TrapSettings, detect, flat_steps
from ragen.metrics.intervals import t_quantile

Row = dict[str, float | None]
Curve = Callable[[int], float]


def made(
    steps: int,
    *,
    success: Curve = lambda t: 0.3,
    entropy: Curve = lambda t: 1.0,
    similarity: Curve = lambda t: 0.4,
    norm: Curve = lambda t: 1.0,
    spread: Curve | None = None,
) -> list[Row]:
    """A run without noise in which an episode pays 1 or 0; ``spread`` is the in-group std (default: √(p (1 − p)))."""
    return [
        {
            "step": t,
            "rollout/success": success(t),
            "rollout/return_mean": success(t),
            "rollout/return_max": 1.0,
            "rollout/return_std": math.sqrt(success(t) * (1 - success(t))) if spread is None else spread(t),
            "rollout/entropy": entropy(t),
            "rollout/self_similarity": similarity(t),
            "update/grad_norm": norm(t),
        }
        for t in range(1, steps + 1)
    ]


def drawn(rng: np.random.Generator, success: Curve, steps: int = 100, even: float = 2.0) -> list[Row]:
    """A run of 8 groups of 16 with chance in everything: instances differ (Beta), so do episodes, entropy and gradients."""
    rows = []
    for t in range(1, steps + 1):
        p = min(max(success(t), 1e-6), 1 - 1e-6)
        won = rng.random((8, 16)) < rng.beta(even * p, even * (1 - p), size=8)[:, None]
        row = made(1, success=lambda _, won=won: float(won.mean()))[0]
        row |= {"step": t, "rollout/return_std": float(won.std(axis=1, ddof=1).mean())}
        row |= {"rollout/return_max": float(won.max()), "update/grad_norm": float(np.exp(0.4 * rng.normal()))}
        row |= {"rollout/entropy": float(np.exp(0.05 * rng.normal())), "rollout/self_similarity": 0.4 + 0.02 * rng.normal()}
        rows.append(row)
    return rows


def late(start: int, before: float, after: float) -> Curve:
    return lambda t: before if t < start else after


def test_a_fallen_reward_std_warns_after_the_window_has_seen_it_three_times() -> None:
    """With std 0.4 → 0 at step 31: level 0.4 · (5 − n)/5 after n steps, below 0.2 from n = 3 on, the third time at n = 5."""
    run = made(60, spread=late(31, 0.4, 0.0))
    assert detect(run) == Signals(warning=35, fired=("reward std",))
    assert detect(run, TrapSettings(drop=0.7)) == Signals(warning=34, fired=("reward std",))  # 0.24 < 0.28 at n = 2
    assert detect(run, TrapSettings(window=10)) == Signals(warning=38, fired=("reward std",))  # n = 6: 0.16 < 0.2
    assert detect(made(60, spread=late(31, 0.4, 0.21))) == NOTHING  # not half


def test_the_trap_of_the_paper_gives_all_signals_in_their_order() -> None:
    """F2: std, entropy and diversity go first, then the gradient spikes, then the mean falls."""
    run = made(
        120,
        success=lambda t: 0.4 if t < 90 else max(0.0, 0.4 - 0.02 * (t - 90)),
        spread=lambda t: 0.45 if t < 40 else 0.45 * 0.9 ** (t - 40),
        entropy=lambda t: 0.99**t if t < 40 else 0.99**40 * 0.9 ** (t - 40),
        similarity=lambda t: min(0.99, 0.4 if t < 40 else 0.4 + 0.02 * (t - 40)),
        norm=late(88, 0.5, 4.0),
    )
    found = detect(run)
    assert found.warning is not None
    assert found.collapsed is not None
    assert found.spike == 88
    assert 40 < found.warning < 60 < found.spike < found.collapsed < 110
    assert found.fired[0] == "reward std"


def test_entropy_and_repetition_warn_together_where_nothing_is_gained_and_never_alone() -> None:
    entropy, similarity, falling = late(31, 1.0, 0.1), late(31, 0.4, 0.95), late(31, 0.4, 0.38)
    both = detect(made(60, success=falling, entropy=entropy, similarity=similarity, spread=late(0, 0.4, 0.4)))
    assert (both.warning, both.fired) == (35, ("entropy", "repetition"))
    assert detect(made(60, success=falling, entropy=entropy)) == NOTHING
    assert detect(made(60, success=falling, similarity=similarity)) == NOTHING
    gaining = made(60, success=late(31, 0.4, 0.5), entropy=entropy, similarity=similarity)
    assert detect(gaining) == NOTHING


@pytest.mark.parametrize("days", [12, 40, 90])
def test_a_healthy_run_up_to_the_ceiling_gives_nothing(days: int) -> None:
    """Entropy, diversity and reward std all go to nothing there, because everything succeeds."""
    run = made(
        150,
        success=lambda t: min(1.0, 0.1 + 0.9 * t / days),
        entropy=lambda t: math.exp(-3 * t / days),
        similarity=lambda t: 1 - 0.6 * math.exp(-3 * t / days),
        norm=lambda t: math.exp(-3 * t / days) * (9 if t == 140 else 1),
    )
    assert run[-1]["rollout/return_std"] == 0
    assert detect(run) == NOTHING


def test_a_std_that_falls_while_the_mean_does_not_rise_is_told_from_one_that_success_explains() -> None:
    rising = [0.5 + 0.38 * min(1.0, t / 40) for t in range(1, 101)]
    explained = made(100, success=lambda t: rising[t - 1], spread=lambda t: math.sqrt(1 - rising[t - 1]) * 0.5)
    same_std = made(100, success=lambda t: 0.5, spread=lambda t: math.sqrt(1 - rising[t - 1]) * 0.5)
    assert detect(explained, TrapSettings(drop=0.7)) == NOTHING
    assert detect(same_std, TrapSettings(drop=0.7)).fired == ("reward std",)


def test_what_falls_in_a_solved_task_is_no_warning() -> None:
    assert detect(made(60, success=lambda t: 0.92, spread=late(31, 0.27, 0.0))) == NOTHING
    assert detect(made(60, success=lambda t: 0.88, spread=late(31, 0.32, 0.0))).warning == 35
    assert detect(made(60, success=lambda t: 0.92, spread=late(31, 0.27, 0.0)), TrapSettings(solved=0.95)).warning == 35


def test_a_bandit_that_ends_on_the_safe_arm_is_a_trap_although_its_return_hardly_moves() -> None:
    run = made(60, success=late(20, 0.5, 0.0), spread=late(20, 0.4, 0.0))
    for row in run:
        row["rollout/return_mean"] = 0.2 if row["rollout/success"] else 0.15
    found = detect(run)
    assert found.fired == ("reward std",)
    assert found.collapsed == found.warning


@pytest.mark.parametrize("window", [3, 5, 8])
@pytest.mark.parametrize(("level", "even"), [(0.05, 0.5), (0.1, 2.0), (0.3, 2.0), (0.8, 0.5)])
def test_the_noise_of_eight_groups_gives_almost_no_alarm(level: float, even: float, window: int) -> None:
    rng = np.random.default_rng(7)
    found = [detect(drawn(rng, lambda t: level, even=even), TrapSettings(window=window)) for _ in range(40)]
    assert sum(signals != NOTHING for signals in found) <= 2  # a spike by chance is one of them


@pytest.mark.parametrize("window", [3, 4])
def test_the_spread_of_a_few_steps_is_not_taken_for_known(window: int) -> None:
    rng = np.random.default_rng(7)
    found = [detect(drawn(rng, lambda t: 0.1, steps=12), TrapSettings(window=window)) for _ in range(200)]
    assert sum(signals != NOTHING for signals in found) <= 1


@st.composite
def healthy(draw: Any) -> tuple[int, list[float]]:
    """A window, and a level with noise for at least as many steps, which a window of zeros would stand out of."""
    window = draw(st.integers(3, 12))
    values = draw(st.lists(st.floats(0.1, 0.8), min_size=window, max_size=40))
    mean, n = statistics.mean(values), len(values)
    certain = max(3.0, t_quantile(0.9973, n - 1))
    assume(mean > 1.01 * certain * statistics.stdev(values) * math.sqrt(1 / window + 1 / n))
    return window, values


@settings(max_examples=150)
@given(healthy())
def test_a_total_and_lasting_collapse_is_seen_whatever_the_window_is(case: tuple[int, list[float]]) -> None:
    """At the (w + 2)-th step at the latest: what has fallen does not enter the level it fell from."""
    window, values = case
    n = len(values)
    run = made(n + window + 2, success=lambda t: values[t - 1] if t <= n else 0.0)
    trap = TrapSettings(window=window)
    found = detect(run, trap)
    assume(detect(run[:n], trap) == NOTHING)
    assert found.collapsed is not None
    assert n < found.collapsed <= n + window + 2
    flat = made(n + window + 2, spread=lambda t: values[t - 1] if t <= n else 0.0)
    assume(detect(flat[:n], trap) == NOTHING)
    found = detect(flat, trap)
    assert found.warning is not None
    assert n < found.warning <= n + window + 2


@pytest.mark.parametrize("window", range(3, 13))
def test_the_same_collapse_is_seen_at_every_window(window: int) -> None:
    """Success .15 or .45 in turn for 20 steps, then none: at window 3 zeros among the healthy steps used to hide it."""
    run = made(20 + window + 2, success=lambda t: 0.0 if t > 20 else 0.15 + 0.3 * (t % 2))
    found = detect(run, TrapSettings(window=window))
    assert found.collapsed is not None
    assert 20 < found.collapsed <= 20 + window + 2


def test_a_collapse_is_seen_through_the_noise_of_eight_groups() -> None:
    rng = np.random.default_rng(7)
    for _ in range(20):
        found = detect(drawn(rng, lambda t: 0.5 if t < 50 else 0.5 * 0.8 ** (t - 50)))
        assert found.warning is not None
        assert found.collapsed is not None
        assert min(found.warning, found.collapsed) > 50
        assert found.warning < 80


def test_a_spike_alone_is_told_and_does_not_warn() -> None:
    run = made(60, norm=late(30, 1.0, 5.1))
    assert detect(run) == Signals(spike=30)
    assert detect(made(60, norm=late(30, 1.0, 5.0))) == NOTHING
    assert detect(made(60, norm=lambda t: 9.0 if t == 1 else 6.0 if t == 30 else 1.0)) == NOTHING  # below an earlier one
    assert detect(made(60, norm=lambda t: 1.0 if t < 10 else 5.1)) == NOTHING  # fewer than 2w before it
    assert detect(made(60, success=lambda t: 0.95, norm=late(30, 1.0, 5.1))) == NOTHING  # solved


def test_skipped_updates_leave_the_spike_rule_what_there_is() -> None:
    run = made(60, norm=late(30, 1.0, 5.1))
    for row in run[11:20]:
        del row["update/grad_norm"]
    run[20]["update/grad_norm"] = None
    assert detect(run) == Signals(spike=30)


def test_a_step_without_a_number_makes_no_statement() -> None:
    run = made(60, spread=late(31, 0.4, 0.0))
    run[33]["rollout/return_std"] = None
    assert detect(run) == Signals(warning=41, fired=("reward std",))  # windows without step 34 begin at step 39


def test_short_histories_give_nothing() -> None:
    run = made(12, spread=late(7, 0.4, 0.0))
    assert all(detect(run[:n]) == NOTHING for n in range(12))
    assert detect(run).warning == 12  # the earliest: the 2w + 2-th step
    assert detect([]) == NOTHING
    assert detect([{"step": n} for n in range(1, 40)]) == NOTHING


def test_flat_steps_are_those_at_the_end_without_a_group_whose_returns_differ() -> None:
    def rows(*spreads: float | None, success: float | None = 0.0) -> list[Row]:
        return [{"step": n, "rollout/success": success, "rollout/return_std_max": x} for n, x in enumerate(spreads, 1)]

    assert flat_steps([]) == 0
    assert flat_steps(rows(0.0, 0.0, 0.0)) == 3
    assert flat_steps(rows(0.0, 0.2, 0.0, 0.0)) == 2
    assert flat_steps(rows(0.0, None, 0.0)) == 1  # a step without any group says nothing
    assert flat_steps(rows(0.0, 1e-9)) == 0
    assert flat_steps(rows(0.0, 0.0, success=0.9)) == 0  # solved: that is what success looks like
    assert flat_steps(rows(0.0, 0.0, success=0.9), TrapSettings(solved=0.95)) == 2


def test_the_signals_are_logged_as_zero_or_one() -> None:
    assert Signals(warning=3, spike=9).metrics() == {"trap/warning": 1.0, "trap/spike": 1.0, "trap/collapsed": 0.0}


@st.composite
def runs(draw: Any) -> list[Row]:
    """A noisy run that may fall into the trap somewhere, with gaps."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    start = draw(st.integers(5, 60))
    run = drawn(rng, lambda t: 0.5 if t < start else 0.5 * 0.7 ** (t - start), steps=70)
    for t in draw(st.lists(st.integers(0, 69), max_size=3)):
        run[t]["update/grad_norm"] = draw(st.sampled_from([None, 8.0, math.nan]))
    return run


@settings(max_examples=25)
@given(runs())
def test_a_signal_once_given_never_moves(run: list[Row]) -> None:
    last = detect(run)
    for n in range(1, len(run)):
        found = detect(run[:n])
        for name in ("warning", "spike", "collapsed"):
            final = getattr(last, name)
            assert getattr(found, name) == (final if final is not None and final <= n else None)
        assert found.fired == (last.fired if found.warning is not None else ())


@settings(max_examples=25)
@given(runs(), st.sampled_from([2.0**-9, 8.0]), st.sampled_from([-4.0, 0.0, 1.0]))
def test_scales_and_shifts_change_nothing(run: list[Row], scale: float, shift: float) -> None:
    changed = [dict(row) for row in run]
    for row in changed:
        for name in ("rollout/return_mean", "rollout/return_max"):
            row[name] = (row[name] or 0.0) * scale + shift
        for name in ("rollout/return_std", "rollout/entropy", "update/grad_norm"):
            row[name] = None if row[name] is None else row[name] * scale
    assert detect(changed) == detect(run)
