"""Agreement of the actions a reasoning names with those that ran."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.rewards import Reasoning, plan_agreement
from ragen.rewards.plan_agreement import common_length

ACTIONS = st.lists(st.sampled_from("UDLR"), max_size=6).map(tuple)


def score(named: str, executed: str) -> float:
    return plan_agreement(Reasoning("", tuple(named), ""), tuple(executed))


@pytest.mark.parametrize(
    ("named", "executed", "expected"),
    [
        ("UL", "UL", 1),
        ("UL", "LU", 1 / 2),  # the right actions in another order
        ("ULU", "UU", 2 / 3),  # one was named and left out
        ("UU", "ULU", 2 / 3),  # one was done and not named
        ("UDLR", "L", 1 / 4),  # listing all
        ("UDLRUDLR", "L", 1 / 8),  # ... and again
        ("D", "U", 0),
        ("", "U", 0),
        ("U", "", 0),
        ("", "", 0),
    ],
)
def test_scores_by_hand(named: str, executed: str, expected: float) -> None:
    assert score(named, executed) == pytest.approx(expected)


@given(ACTIONS, ACTIONS)
def test_the_longest_common_subsequence_is_what_enumeration_finds(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    def subsequences(actions: tuple[str, ...]) -> set[tuple[str, ...]]:
        return {kept for n in range(len(actions) + 1) for kept in combinations(actions, n)}

    assert common_length(one, other) == max(map(len, subsequences(one) & subsequences(other)))


@given(ACTIONS, ACTIONS, ACTIONS)
def test_it_is_one_only_for_the_same_actions_and_naming_more_than_ran_pays_less_for_each(
    named: tuple[str, ...], more: tuple[str, ...], executed: tuple[str, ...]
) -> None:
    def of(listed: tuple[str, ...]) -> float:
        return plan_agreement(Reasoning("", listed, ""), executed)

    assert 0 <= of(named) <= 1
    assert (of(named) == 1) == (named == executed != ())
    listed = executed + more
    assert of(listed) == (len(executed) / len(listed) if executed else 0)
