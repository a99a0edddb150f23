"""Trajectory → rows: only sampled tokens train, and every reward arrives (A2, A3, A5, A12, A15)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.rollout.segments import segments

END = 99


def turn(
    prompt: list[int],
    sampled: list[int],
    reward: float = 0.0,
    *,
    extends: bool = True,
    penalty: float = 0.0,
    stop: str = "end",
    **more: float,
) -> Turn:
    logprobs = tuple(-0.5 - 0.01 * i for i in range(len(sampled)))
    completion = Completion(tuple(sampled), logprobs, (1.0,) * len(sampled), "", StopReason(stop))
    return Turn(tuple(prompt), extends, completion, "seen", (), True, reward, penalty, **more)


def trajectory(*turns: Turn) -> Trajectory:
    return Trajectory("env", 3, 1, turns, EndReason.TERMINATED, success=True)


def test_a2_a3_two_turns_are_one_row_of_the_very_ids_with_only_sampled_ones_on_the_mask() -> None:
    (row,) = segments(trajectory(turn([1, 2, 3], [7, END], 0.25), turn([10, 4, 5], [8, 9, END], 1.0, penalty=-0.1)))
    assert row.token_ids.tolist() == [1, 2, 3, 7, END, 10, 4, 5, 8, 9, END]
    assert row.mask.tolist() == [False] * 3 + [True] * 2 + [False] * 3 + [True] * 3  # END included, the newline (10) is not
    assert row.turn_ids.tolist() == [-1, -1, -1, 0, 0, -1, -1, -1, 1, 1, 1]
    np.testing.assert_allclose(row.rewards, [0, 0, 0, 0, 0.25, 0, 0, 0, 0, 0, 0.9], rtol=1e-6)
    np.testing.assert_allclose(row.logprobs, [0, 0, 0, -0.5, -0.51, 0, 0, 0, -0.5, -0.51, -0.52], rtol=1e-6)
    assert (row.token_ids.dtype, row.mask.dtype, row.logprobs.dtype) == (np.int64, np.bool_, np.float32)
    assert (row.turn_ids.dtype, row.rewards.dtype) == (np.int32, np.float64)


def test_process_reward_and_overlong_penalty_lie_on_the_last_sampled_token_too() -> None:
    played = trajectory(
        turn([1, 2], [7, END], 0.25, process_reward=0.5, overlong_penalty=-0.125),
        turn([3], [8], penalty=-0.5, process_reward=0.25),
    )
    (row,) = segments(played)
    assert row.rewards.tolist() == [0, 0, 0, 0.625, 0, -0.25]
    assert played.total_return == 0.375
    assert played.task_return == 0.25


def test_a5_a_reply_cut_by_its_budget_gets_no_token_the_policy_did_not_sample() -> None:
    (row,) = segments(trajectory(turn([1], [5, 6], stop="length"), turn([END, 10, 2], [7, END])))
    assert row.token_ids[row.mask].tolist() == [5, 6, 7, END]
    assert not row.mask[3]  # the end of turn the renderer had to add


def test_a12_turns_of_unequal_number_keep_all_their_rewards() -> None:
    long = segments(trajectory(*(turn([1], [5], r) for r in (0.1, 0.2, 1.0))))
    short = segments(trajectory(turn([1], [5], 0.5)))
    assert sum(float(row.rewards.sum()) for row in long) == pytest.approx(1.3)
    assert sum(float(row.rewards.sum()) for row in short) == pytest.approx(0.5)


def test_a15_sixty_sampled_tokens_in_five_turns_are_all_trainable() -> None:
    (row,) = segments(trajectory(*(turn([1, 2, 3], list(range(10, 22))) for _ in range(5))))
    assert int(row.mask.sum()) == 60


def test_a_turn_that_does_not_extend_starts_a_new_row_and_turn_numbers_go_on() -> None:
    first, second = segments(trajectory(turn([1], [5]), turn([2], [6]), turn([1, 3], [7], 1.0, extends=False)))
    assert first.token_ids.tolist() == [1, 5, 2, 6]
    assert second.token_ids.tolist() == [1, 3, 7]
    assert second.turn_ids.tolist() == [-1, -1, 2]


def test_an_empty_reply_gives_its_reward_to_the_token_sampled_before_it_even_in_an_earlier_row() -> None:
    first, second = segments(trajectory(turn([1], [5], 0.5), turn([2], [], -0.1, extends=False), turn([3], [6], 1.0)))
    np.testing.assert_allclose(first.rewards, [0, 0.4], rtol=1e-6)
    np.testing.assert_allclose(second.rewards, [0, 0, 1.0])


def test_an_empty_first_reply_gives_its_reward_to_the_first_sampled_token_after_it() -> None:
    (row,) = segments(trajectory(turn([1], [], -0.5), turn([2], [6, 7], 1.0)))
    np.testing.assert_allclose(row.rewards, [0, 0, 0, 0.5])


def test_a_trajectory_with_turns_but_nothing_sampled_is_refused_and_one_without_turns_has_no_row() -> None:
    with pytest.raises(ValueError, match=r"member 1.*no sampled token"):
        segments(trajectory(turn([1], [], 1.0)))
    assert segments(trajectory()) == ()


TURNS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 9), min_size=1, max_size=4),
        st.lists(st.integers(0, 9), max_size=4),
        st.integers(-8, 8),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
).filter(lambda turns: any(sampled for _, sampled, *_ in turns))


@given(TURNS)
def test_nothing_is_lost_ids_sampled_tokens_and_return_add_up(turns: list[tuple[list[int], list[int], int, bool]]) -> None:
    source = trajectory(*(turn(p, s, r / 8, extends=e) for p, s, r, e in turns))
    rows = segments(source)
    assert [i for row in rows for i in row.token_ids] == [i for p, s, *_ in turns for i in (*p, *s)]
    assert [i for row in rows for i in row.token_ids[row.mask]] == [i for _, s, *_ in turns for i in s]
    assert sum(float(row.rewards.sum()) for row in rows) == source.total_return  # eighths are exact
    for row in rows:
        assert np.all(row.rewards[~row.mask] == 0)
        assert np.all((row.turn_ids == -1) == ~row.mask)
    assert len(rows) == 1 + sum(not e for *_, e in turns[1:])
