"""A28: what the view marks as trained is exactly the mask."""

import io

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.rollout.segments import segments
from ragen.runs.events import StoredTrajectory
from ragen.runs.view import CLOSE, OPEN, Reading, render, show_trajectories, spans


def decode(ids):
    return "".join(chr(0x4E00 + i) for i in ids)


@st.composite
def played(draw):
    turns = []
    for number in range(draw(st.integers(1, 4))):
        sampled = draw(st.lists(st.integers(0, 500), min_size=1, max_size=5))
        prompt = draw(st.lists(st.integers(0, 500), min_size=1, max_size=5))
        zeros = (0.0,) * len(sampled)
        completion = Completion(tuple(sampled), zeros, zeros, decode(sampled), draw(st.sampled_from(StopReason)))
        extends = number > 0 and draw(st.booleans())
        turns.append(Turn(tuple(prompt), extends, completion, "o", (), draw(st.booleans()), 0.5, -0.1))
    return Trajectory("e", 1, 0, tuple(turns), EndReason.BUDGET, False)


@given(played())
def test_a28_the_marked_spans_are_the_mask_token_for_token(trajectory):
    for segment in segments(trajectory):
        found = spans(segment, decode)
        assert [i for span in found for i in span.token_ids] == segment.token_ids.tolist()
        marked = np.array([span.trained for span in found for _ in span.token_ids])
        assert (marked == segment.mask).all()


@given(played())
def test_a28_the_printed_marks_enclose_exactly_the_sampled_text(trajectory):
    text = "".join(line.plain for line in render(StoredTrajectory(0, trajectory, None), Reading(decode)))
    inside = [piece.split(CLOSE)[0] for piece in text.split(OPEN)[1:]]
    assert inside == [decode(turn.completion.token_ids) for turn in trajectory.turns]


def turn(text="hi", **changes):
    base = {
        "prompt_ids": (1,),
        "extends": False,
        "observation": "o",
        "actions": ("Up", "Left"),
        "valid": True,
        "reward": 1.0,
    }
    return Turn(**{"completion": Completion((2,), (0.0,), (0.0,), text, StopReason.END), **base, **changes})


def printed(stored, how=decode, *, training=True, **options):
    file = io.StringIO()
    show_trajectories(stored, Console(file=file, width=40), Reading(how, training=training), **options)
    return file.getvalue()


def test_reward_penalty_and_advantage_stand_beside_each_turn():
    second = turn(extends=True, valid=False, actions=(), reward=0.0, penalty=-0.1, invalid_actions=2)
    trajectory = Trajectory("bandit", 77, 3, (turn(), second), EndReason.TERMINATED, True, policy_version=4)
    text = printed([StoredTrajectory(6, trajectory, (0.5, -1.25))])
    assert "bandit · group 6 · member 3 · instance 77 · policy 4" in text
    assert "turn 1: reward 1 · advantage +0.500 · actions Up || Left · stop end" in text
    assert "turn 2: reward 0 · penalty -0.1 · advantage -1.250 · no action · invalid · 2 skipped · stop end" in text
    assert "end: terminated · success · task return 1 · total 0.9" in text


def test_a_process_reward_with_its_score_and_the_overlong_penalty_are_shown():
    scored = turn(process_score=0.0, overlong_penalty=-0.125)
    trajectory = Trajectory("b", 1, 0, (scored, turn(process_score=2 / 3, process_reward=0.2)), EndReason.TERMINATED, True)
    text = printed([StoredTrajectory(0, trajectory, (0.5, 0.5))])
    assert "turn 1: reward 1 · process reward 0 (score 0.00) · overlong -0.125 · advantage" in text
    assert "turn 2: reward 1 · process reward 0.2 (score 0.67) · advantage" in text
    assert "task return 2 · total 2.075" in text


def test_what_the_filter_left_out_is_not_called_trained():
    trajectory = Trajectory("bandit", 1, 0, (turn(),), EndReason.TERMINATED, True)
    assert "not trained (filtered out)" in printed([StoredTrajectory(0, trajectory, None)])


def test_a_failed_episode_shows_the_error():
    trajectory = Trajectory("bandit", 1, 0, (), EndReason.ERROR, False, error="boom \x1b[2J")
    assert r"the environment failed: boom \x1b[2J" in printed([StoredTrajectory(None, trajectory)])


def test_text_cannot_steer_the_terminal_or_the_markup():
    trajectory = Trajectory("bandit", 1, 0, (turn(),), EndReason.TERMINATED, True)
    text = printed([StoredTrajectory(0, trajectory)], lambda ids: "\x1b[31m[red]x[/red]\u202e\ud800")
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "\ud800" not in text
    assert "\\x1b[31m[red]x[/red]" in text


def test_a_limit_says_how_many_are_left():
    stored = [StoredTrajectory(0, Trajectory("bandit", 1, m, (turn(),), EndReason.TERMINATED, True)) for m in range(5)]
    text = printed(stored, limit=2)
    assert text.count("member") == 2
    assert "3 more" in text


def test_of_an_evaluation_nothing_is_said_about_training():
    lost = Trajectory("bandit", 2, 0, (), EndReason.ERROR, False, error="the endpoint is down")
    trajectory = Trajectory("bandit", 1, 0, (turn(),), EndReason.TERMINATED, True)
    text = printed([StoredTrajectory(0, trajectory), StoredTrajectory(None, lost)], training=False)
    assert "── bandit · group 0 · member 0 · instance 1 ──" in text
    assert "turn 1: reward 1 · actions Up || Left · stop end" in text
    assert "lost: the endpoint is down" in text
    assert not any(word in text for word in ("train", "advantage", "policy", "environment failed"))


def test_without_ids_the_texts_of_the_turns_are_shown():
    reply = Completion((), (), (), "I say\x1b <answer>Up</answer>", StopReason.END, untold_tokens=7)
    trajectory = Trajectory(
        "bandit", 1, 0, (turn(completion=reply, observation="see\u202e this"),), EndReason.TERMINATED, True
    )
    text = printed([StoredTrajectory(0, trajectory)], training=False)
    assert f"see\\u202e this\n{OPEN}I say\\x1b <answer>Up</answer>{CLOSE}\n   ↳ turn 1" in text
