"""The soft overlong penalty (DAPO, eq. 13)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.rewards import overlong_penalty


@pytest.mark.parametrize(
    ("length", "expected"), [(0, 0), (15, 0), (16, 0), (17, -0.25), (18, -0.5), (19, -0.75), (20, -1), (21, -1), (99, -1)]
)
def test_by_hand_at_the_borders(length: int, expected: float) -> None:
    assert overlong_penalty(length, limit=20, buffer=4) == expected


def test_a_buffer_of_the_whole_limit_is_linear_from_the_first_token_and_one_of_nothing_is_off() -> None:
    assert [overlong_penalty(n, limit=4, buffer=4) for n in range(6)] == [0, -0.25, -0.5, -0.75, -1, -1]
    assert [overlong_penalty(n, limit=4, buffer=0) for n in range(6)] == [0] * 6


@pytest.mark.parametrize("buffer", [-1, 5])
def test_an_impossible_buffer_is_refused(buffer: int) -> None:
    with pytest.raises(ValueError, match=f"between 0 and the limit 4, got {buffer}"):
        overlong_penalty(1, limit=4, buffer=buffer)


@given(st.integers(1, 300), st.integers(1, 300), st.integers(0, 700))
def test_it_is_the_equation_piece_by_piece(limit: int, part: int, length: int) -> None:
    buffer = min(part, limit)
    if length <= limit - buffer:
        expected = 0.0
    elif length <= limit:
        expected = ((limit - buffer) - length) / buffer
    else:
        expected = -1.0
    assert overlong_penalty(length, limit=limit, buffer=buffer) == pytest.approx(expected)
