"""What is out of the ordinary in a trajectory, as flags: a filter finds such trajectories, and they keep their tokens."""

from collections import Counter
from collections.abc import Sequence
from enum import IntFlag

from ragen.episode import EndReason, StopReason, Trajectory
from ragen.metrics.diversity import distinct_n, reasoning, words
from ragen.runs.events import StoredTrajectory

LOOP_WORDS, LOOP_DISTINCT = 20, 0.5  # a text of so many words of whose word pairs at most half differ goes in circles
COMMON = 0.5  # a reply that more than this share of a step's turns give is the step's one wording


class Flag(IntFlag):
    """One bit each; the page has the same numbers."""

    LOST = 1  # the environment failed: the episode is not trained on
    INVALID = 2  # a turn without valid format or without a valid action
    LOOP = 4  # a reply goes in circles: at least 20 words, of whose word pairs at most half differ
    COMMON = 8  # without success, and every turn gives the one reply that more than half of the step's turns give
    CUT = 16  # a reply was cut by its token budget


ANOMALOUS = Flag.LOST | Flag.INVALID | Flag.LOOP | Flag.COMMON
COLLAPSED = Flag.LOOP | Flag.COMMON


def flags(stored: Sequence[StoredTrajectory]) -> list[Flag]:
    """The flags of each trajectory of a step."""
    wording = _wording([turn.completion.text for item in stored for turn in item.trajectory.turns])
    return [_flags(item.trajectory, wording) for item in stored]


def _flags(trajectory: Trajectory, wording: str | None) -> Flag:
    found = Flag(0)
    replies = [turn.completion.text for turn in trajectory.turns]
    if trajectory.end is EndReason.ERROR:
        found |= Flag.LOST
    if not all(turn.valid for turn in trajectory.turns):
        found |= Flag.INVALID
    if any(goes_in_circles(reply) for reply in replies):
        found |= Flag.LOOP
    if wording is not None and not trajectory.success and replies and all(reply == wording for reply in replies):
        found |= Flag.COMMON
    if any(turn.completion.stop is StopReason.LENGTH for turn in trajectory.turns):
        found |= Flag.CUT
    return found


def goes_in_circles(reply: str) -> bool:
    """Whether a reply repeats itself: its reasoning, or all of it where there is no ``</think>``.

    The answer after it may well name one action many times.

    >>> goes_in_circles("I go up and " * 10), goes_in_circles("I go up and then left.")
    (True, False)
    """
    thought = reasoning(reply)
    text = reply if thought is None else thought
    return len(words(text)) >= LOOP_WORDS and distinct_n([text]) <= LOOP_DISTINCT


def _wording(replies: Sequence[str]) -> str | None:
    """The reply that more than ``COMMON`` of all give, if there is one (of at least two replies)."""
    if len(replies) < 2:
        return None
    reply, times = Counter(replies).most_common(1)[0]
    return reply if times > COMMON * len(replies) else None
