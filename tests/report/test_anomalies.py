"""Flags of trajectories that are out of the ordinary."""

from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.report.anomalies import ANOMALOUS, Flag, flags, goes_in_circles
from ragen.runs.events import StoredTrajectory

LOOP = "go up and go up and " * 6


def episode(*replies, success=False, valid=True, stop=StopReason.END, end=EndReason.BUDGET):
    turns = tuple(Turn((1,), False, Completion((1,), (0.0,), (0.0,), text, stop), "o", (), valid, 0.0) for text in replies)
    return StoredTrajectory(0, Trajectory("e", 1, 0, turns, end, success))


def test_each_sign_has_its_flag():
    found = flags(
        [
            episode("a", "b"),
            episode("c", valid=False),
            episode("d", stop=StopReason.LENGTH),
            episode(end=EndReason.ERROR),
            episode(LOOP),
        ]
    )
    assert found == [Flag(0), Flag.INVALID, Flag.CUT, Flag.LOST, Flag.LOOP]
    assert not Flag.CUT & ANOMALOUS


def test_the_common_reply_is_one_that_more_than_half_of_the_turns_give():
    others = [episode("x"), episode("y")]
    assert flags([episode("same"), episode("same"), *others]) == [Flag(0)] * 4  # two of four
    assert flags([episode("same"), episode("same", "same"), *others])[:2] == [Flag.COMMON, Flag.COMMON]  # three of five


def test_success_and_other_replies_beside_it_are_not_collapsed():
    step = [episode("same"), episode("same", success=True), episode("same", "other"), episode("same")]
    assert flags(step) == [Flag.COMMON, Flag(0), Flag(0), Flag.COMMON]
    assert flags([episode("same")]) == [Flag(0)]  # one reply alone repeats nothing


def test_only_the_reasoning_is_asked_for_circles_where_there_is_one():
    assert goes_in_circles(LOOP)
    assert not goes_in_circles("go up and go up and")  # too short to tell
    assert not goes_in_circles(f"I walk.</think><answer>{'Up || ' * 20}</answer>")
    assert goes_in_circles(f"<think>{LOOP}</think><answer>Up</answer>")
