"""Training instances that come back: fair order, skipping by chance, never more than a bounded walk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.rollout.pool import draw, visited


def walk(size: int, counts: list[int], probability: list[float] | None = None, seed: int = 0) -> list[tuple[int, ...]]:
    chance, cursor, drawn = np.array(probability or [1.0] * size), 0, []
    for count in counts:
        found = draw(seed, cursor=cursor, count=count, probability=chance)
        drawn.append(found.instances)
        cursor = found.cursor
    return drawn


def test_every_instance_is_played_once_before_any_comes_back() -> None:
    steps = walk(12, [4] * 6)
    first, second = (sorted(i for step in half for i in step) for half in (steps[:3], steps[3:]))
    assert first == second == list(range(12))
    assert steps[:3] != steps[3:]  # in another order


def test_a_batch_across_the_end_of_the_pool_has_no_instance_twice() -> None:
    for seed in range(20):
        for step in walk(5, [3] * 10, seed=seed):
            assert len(set(step)) == 3


def test_an_instance_with_a_small_chance_is_played_about_as_often_as_it_says() -> None:
    steps = walk(4, [1] * 4000, [1.0, 1.0, 1.0, 0.25])
    share = sum(step == (3,) for step in steps) / 4000
    assert share == pytest.approx(0.25 / 3.25, abs=0.015)  # the walk meets each as often; 3σ is 0.0126


def test_what_is_passed_over_fills_the_batch_when_nothing_else_is_left() -> None:
    found = draw(0, cursor=0, count=3, probability=np.array([1e-12] * 3))
    assert sorted(found.instances) == [0, 1, 2]
    assert (found.cursor, found.skipped) == (6, 6)


def test_taken_instances_are_not_drawn_and_too_many_are_refused() -> None:
    found = draw(0, cursor=0, count=2, probability=np.ones(4), taken={1, 2})
    assert sorted(found.instances) == [0, 3]
    with pytest.raises(ValueError, match="3 of 4 instances"):
        draw(0, cursor=0, count=3, probability=np.ones(4), taken={1, 2})


@given(data=st.data(), size=st.integers(1, 12), seed=st.integers(0, 5), cursor=st.integers(0, 40))
def test_a_draw_is_bounded_complete_and_the_same_each_time(data: st.DataObject, size: int, seed: int, cursor: int) -> None:
    chance = np.array(data.draw(st.lists(st.floats(0.01, 1), min_size=size, max_size=size)))
    taken = data.draw(st.sets(st.integers(0, size - 1)))
    count = data.draw(st.integers(0, size - len(taken)))
    found = draw(seed, cursor=cursor, count=count, probability=chance, taken=taken)
    assert len(set(found.instances)) == count == len(found.instances)
    assert set(found.instances) <= set(range(size)) - taken
    assert cursor <= found.cursor <= cursor + 2 * size
    assert found == draw(seed, cursor=cursor, count=count, probability=chance, taken=taken)


@given(size=st.integers(1, 9), counts=st.lists(st.integers(1, 4), max_size=5), seed=st.integers(0, 3))
def test_what_was_played_is_among_what_was_visited(size: int, counts: list[int], seed: int) -> None:
    cursor, played = 0, set()
    for count in counts:
        found = draw(seed, cursor=cursor, count=min(count, size), probability=np.full(size, 0.3))
        played |= set(found.instances)
        cursor = found.cursor
    assert played <= set(visited(seed, size, cursor)) <= set(range(size))


def test_nothing_is_visited_before_the_first_step() -> None:
    assert list(visited(0, 9, 0)) == []
    assert list(visited(0, 9, 9)) == list(range(9))
