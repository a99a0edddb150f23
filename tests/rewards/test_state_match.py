"""What a reasoning says of the state against the state."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs.facts import Fact, offset_facts, offset_parts, place_fact
from ragen.rewards import Reasoning, state_match

WORDS = ("up", "down", "left", "right")
GOAL = offset_facts("goal", [(2, -1)], WORDS)  # 2 down, 1 left: two facts
DOOR = Fact(r"the door is (\w+)", ("open",))


def score(thought: str, *facts: Fact) -> float:
    return state_match(Reasoning(thought, (), "", facts), ("Up",))


@pytest.mark.parametrize(
    ("thought", "expected"),
    [
        ("Goal is 2 down, 1 left. The door is open.", 1),
        ("Goal is 2 down, 1 left. I go there.", 2 / 3),
        ("The goal lies 1 left and 2 down, and the door is open", 1),
        ("GOAL:   2 Down\n1 LEFT", 2 / 3),
        ("Goal is 2 down.", 1 / 3),
        ("Goal is 1 left. The door is open.", 2 / 3),
        ("goal is 2 down, 1 left. goal is 2 down, 1 left. goal is 2 down, 1 left.", 2 / 3),  # repeating adds nothing
        ("Goal is 2 down, 1 left. The door is shut.", 1 / 3),  # two true, one false
        ("Goal is 2 down, 3 left.", 0),  # one true, one false
        ("Goal is 1 down, 1 left. The door is open.", 1 / 3),
        ("The door is open, the door is shut.", 0),  # both ways: false
        ("Goal is 1 down, 2 left. The door is shut.", 0),  # never below 0
        ("I go 2 down, 1 left.", 0),  # a plan, no statement
        ("The subgoal is 2 down", 0),
        ("The goal is 12 down or 2 downs", 0),
        ("", 0),
    ],
)
def test_scores_by_hand(thought: str, expected: float) -> None:
    assert score(thought, *GOAL, DOOR) == pytest.approx(expected)


def test_stating_every_offset_pays_nothing_and_takes_from_another_truth() -> None:
    every = " ".join(f"Goal is {d} {v}, {r} {h}." for d in (1, 2) for v in WORDS[:2] for r in (1, 2) for h in WORDS[2:])
    assert score(every, *GOAL) == 0
    assert score(every + " The door is open.", *GOAL, DOOR) == 0


def test_a_fact_without_a_truth_can_only_be_stated_wrongly() -> None:
    straight = offset_facts("goal", [(0, 3)], WORDS)  # in the player's row
    assert score("Goal is 3 right.", *straight) == 1
    assert score("Goal is 1 down, 3 right.", *straight) == 0
    assert score("Goal is 1 down, 3 right. The door is open.", *straight, DOOR) == 1 / 2
    assert score("Goal is 1 down.", *offset_facts("goal", [(0, 0)], WORDS)) == 0


def test_without_facts_there_is_nothing_to_pay() -> None:
    assert score("Goal is 2 down, 1 left.") == 0


@given(
    st.lists(st.sampled_from(["goal is", "2 down", "1 left", ",", "and", "the door is", "open", "shut", "\n"]), max_size=30)
)
def test_hostile_orders_stay_in_range_and_repeating_a_text_never_pays_more(parts: list[str]) -> None:
    thought = " ".join(parts)
    assert 0 <= score(thought, *GOAL, DOOR) <= 1
    assert score(f"{thought} . {thought}", *GOAL, DOOR) <= score(thought, *GOAL, DOOR)


@pytest.mark.parametrize(
    "piece", ["goal is ", "goal is 2 ", "goal: 1 down and ", "1", "box (", " ", "goal is 2 down, 1 left. "]
)
def test_long_texts_are_read_in_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    for fact in (*GOAL, place_fact("box(?:es)?", [(1, 2)])):
        fact.verdict(text)  # quadratic work would run into the suite's time limit


@pytest.mark.parametrize(
    ("down", "right", "text"), [(2, -1, "2 down 1 left"), (-3, 0, "3 up"), (0, 4, "4 right"), (0, 0, "")]
)
def test_offsets_in_words(down: int, right: int, text: str) -> None:
    assert " ".join(offset_parts(down, right, WORDS)) == text
    facts = offset_facts("box", [(down, right)], WORDS)
    told = [True if offset else None for offset in (down, right)]
    assert [fact.verdict(f"the box is {text}") for fact in facts] == told
    assert [fact.verdict("the box is 9 down, 9 right") for fact in facts] == [False, False]
    assert [fact.verdict("no box") for fact in facts] == [None, None]


def test_of_several_things_of_a_name_each_may_be_meant() -> None:
    rows, columns = offset_facts("box", [(1, 2), (-3, -4)], WORDS)
    for text in ("box is 1 down, 2 right; box is 4 left, 3 up", "box is 1 down, 4 left"):
        assert rows.verdict(text) is columns.verdict(text) is True
    assert rows.verdict("box is 1 up, 2 left") is columns.verdict("box is 1 up, 2 left") is False


def test_places_are_row_and_column() -> None:
    fact = place_fact("you|player", [(1, 2)])
    for text in ("You: (1, 2).", "you are at (1,2)", "The player is at (1, 2)"):
        assert fact.verdict(text) is True
    assert fact.verdict("You: (2, 1).") is False
    assert fact.verdict("Goal: (2, 1).") is None


def test_words_with_marks_are_taken_as_they_are() -> None:
    rows, _ = offset_facts("goal", [(1, 0)], ("u+", "d.n", "l", "r"))
    assert rows.verdict("goal is 1 d.n") is True
    assert rows.verdict("goal is 1 dxn") is None


@pytest.mark.parametrize(
    ("pattern", "truths"), [("goal is here", ("here",)), (r"goal (\w+)", "here"), (r"goal (\w+)", ["x"])]
)
def test_a_fact_that_nothing_could_state_is_refused(pattern: str, truths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="fact"):
        Fact(pattern, truths)
    with pytest.raises(re.error):
        Fact("goal (", ("x",))
