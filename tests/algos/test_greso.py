"""GRESO: how likely an instance is played again after flat groups."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ragen.algos.greso import flat_streaks, play_probability


def test_the_chance_halves_with_every_flat_group_down_to_the_least() -> None:
    assert play_probability([0, 1, 2, 3, 9], explore=0.5, least=0.1).tolist() == [1.0, 0.5, 0.25, 0.125, 0.1]


def test_an_exploration_probability_of_one_plays_everything() -> None:
    assert play_probability([0, 7, 500], explore=1.0, least=0.01).tolist() == [1.0, 1.0, 1.0]


def test_streaks_count_flat_groups_in_a_row_of_what_was_played() -> None:
    streaks = flat_streaks((0, 0, 2, 5), {0: True, 2: True, 3: False})
    assert streaks == (1, 0, 3, 0)


@given(
    streaks=st.lists(st.integers(0, 2000), min_size=1, max_size=8),
    explore=st.floats(0.01, 1.0),
    least=st.floats(0.001, 1.0),
)
def test_the_chance_is_bounded_and_falls_with_the_streak(streaks: list[int], explore: float, least: float) -> None:
    chance = play_probability(sorted(streaks), explore=explore, least=least)
    assert ((chance >= least) & (chance <= 1)).all()
    assert (np.diff(chance) <= 0).all()
