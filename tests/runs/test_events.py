"""Recorded events read back exactly."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.errors import CheckpointError
from ragen.runs import events

floats = st.floats(allow_nan=False, allow_infinity=False)
rewards = st.floats(-1e9, 1e9)


@st.composite
def turns(draw):
    n = draw(st.integers(0, 5))
    rows = [draw(st.lists(kind, min_size=n, max_size=n)) for kind in (st.integers(0, 2**40), floats, floats)]
    return Turn(
        prompt_ids=tuple(draw(st.lists(st.integers(0, 2**31), max_size=4))),
        extends=draw(st.booleans()),
        completion=Completion(*(tuple(row) for row in rows), text=draw(st.text()), stop=draw(st.sampled_from(StopReason))),
        observation=draw(st.text()),
        actions=tuple(draw(st.lists(st.text(), max_size=3))),
        valid=draw(st.booleans()),
        reward=draw(rewards),
        penalty=draw(rewards),
        process_reward=draw(rewards),
        overlong_penalty=draw(rewards),
        process_score=draw(st.none() | st.floats(0, 1)),
        invalid_actions=draw(st.integers(0, 9)),
        anchor=draw(st.none() | st.text()),
        info={"success": draw(st.booleans()), "note": draw(st.text()), "value": draw(floats)},
        rounding=draw(rewards),
    )


@st.composite
def trajectories(draw):
    return Trajectory(
        env=draw(st.text(min_size=1)),
        instance_seed=draw(st.integers(0, 2**63 - 1)),
        member=draw(st.integers(0, 63)),
        turns=tuple(draw(st.lists(turns(), max_size=3))),
        end=draw(st.sampled_from(EndReason)),
        success=draw(st.booleans()),
        policy_version=draw(st.integers(0, 10**6)),
        error=draw(st.text()),
    )


@given(st.lists(trajectories(), max_size=3), st.lists(floats, max_size=3))
def test_trajectories_read_back_with_exact_ids_and_floats(tmp_path_factory, played, values):
    path = tmp_path_factory.mktemp("t") / "step-000001.jsonl"
    written = [events.StoredTrajectory(3, t, tuple(values)) for t in played] + [
        events.StoredTrajectory(None, t) for t in played
    ]
    events.write_trajectories(path, iter(written))
    assert list(events.read_trajectories(path)) == written


def one_turn(**changes) -> Turn:
    base = {
        "prompt_ids": (1, 2),
        "extends": True,
        "completion": Completion((3,), (-0.5,), (0.1,), "x", StopReason.END),
        "observation": "o",
        "actions": ("Up",),
        "valid": True,
        "reward": 1.0,
    }
    return Turn(**{**base, **changes})


def test_what_json_cannot_hold_is_written_as_what_it_is(tmp_path):
    completion = Completion((3,), (math.nan,), (math.inf,), "x", StopReason.LENGTH)
    turn = one_turn(completion=completion, info={"n": np.int64(4), "a": np.array([1.5, np.nan]), "t": (1, {2}), "o": object})
    path = tmp_path / "a.jsonl"
    events.write_trajectories(
        path, iter([events.StoredTrajectory(0, Trajectory("e", 1, 0, (turn,), EndReason.BUDGET, False))])
    )
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (back,) = events.read_trajectories(path)
    info = back.trajectory.turns[0].info
    assert math.isnan(back.trajectory.turns[0].completion.logprobs[0])
    assert info["n"] == 4
    assert info["a"] == [1.5, None]
    assert info["t"] == [1, [2]]
    assert "object" in info["o"]


def test_advantages_go_to_their_trajectory_and_the_filtered_ones_have_none():
    def member(m):
        return Trajectory("e", 1, m, (one_turn(),), EndReason.BUDGET, False)

    groups = [Group(4, (member(0), member(2))), Group(7, (member(0),))]
    stored = list(events.stored_trajectories(groups, [member(5)], {(4, 2): [0.25], (7, 1): [9.0]}))
    assert [(s.group, s.trajectory.member, s.advantages) for s in stored] == [
        (4, 0, None),
        (4, 2, (0.25,)),
        (7, 0, None),
        (None, 5, None),
    ]


def test_a_half_written_last_line_is_left_out_and_a_broken_one_before_it_is_an_error(tmp_path):
    path = tmp_path / "metrics.jsonl"
    events.append_line(path, {"step": 1, "x": math.nan})
    events.append_line(path, {"step": 2, "x": 0.1})
    path.write_text(path.read_text() + '{"step": 3, "x')
    assert list(events.read_lines(path)) == [{"step": 1, "x": None}, {"step": 2, "x": 0.1}]
    path.write_text('{"step": 1\n{"step": 2}\n')
    with pytest.raises(CheckpointError, match="line 1"):
        list(events.read_lines(path))


@given(st.lists(floats, min_size=4, max_size=4))
def test_cutting_keeps_the_lines_before_bit_for_bit(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("m") / "metrics.jsonl"
    for step, value in enumerate(values, start=1):
        events.append_line(path, {"step": step, "value": value, "count": 3})
    before = path.read_text().splitlines()
    path.write_text(path.read_text() + '{"step"')
    events.cut_lines(path, 2)
    assert path.read_text().splitlines() == before[:2]


def test_trajectories_of_another_kind_are_refused(tmp_path):
    path = tmp_path / "step-000001.jsonl"
    path.write_text('{"hello": 1}\n')
    with pytest.raises(CheckpointError, match="step-000001"):
        list(events.read_trajectories(path))


SURROGATES = ["\ud800", "a\udfffb", "\udcff", "\ud83d"]


@pytest.mark.parametrize("text", SURROGATES, ids=ascii)
def test_b7_text_that_utf8_cannot_hold_is_recorded_and_reads_back(tmp_path, text):
    completion = Completion((3,), (-0.5,), (0.1,), text, StopReason.END)
    turn = one_turn(completion=completion, observation=text, actions=(text,), info={text: [text, {"deep": text}]})
    stored = events.StoredTrajectory(0, Trajectory(text, 1, 0, (turn,), EndReason.ERROR, False, error=text))
    path = tmp_path / "step-000001.jsonl"
    events.write_trajectories(path, iter([stored]))
    assert list(events.read_trajectories(path)) == [stored]
    path.read_bytes().decode("utf-8")
    events.append_line(tmp_path / "metrics.jsonl", {"step": 1, text: text})
    assert events.read_steps(tmp_path / "metrics.jsonl") == [{"step": 1, text: text}]


@pytest.mark.parametrize("line", ["5", "[]", "null", '"x"', "true"])
def test_b30_a_line_that_is_no_record_is_an_error_that_names_it(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step":1}}\n{line}\n')
    with pytest.raises(CheckpointError, match="line 2"):
        list(events.read_lines(path))


@pytest.mark.parametrize("record", ["{}", '{"a":1}', '{"step":null}', '{"step":"1"}', '{"step":1.5}', '{"step":[1]}'])
def test_b30_metrics_without_a_step_are_an_error_and_nothing_is_cut(tmp_path, record):
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step":1}}\n{record}\n')
    for way in (lambda: events.read_steps(path), lambda: events.cut_lines(path, 0)):
        with pytest.raises(CheckpointError, match="record 2"):
            way()
    assert path.read_text() == f'{{"step":1}}\n{record}\n'


def test_what_contains_itself_is_told_as_text_there_and_what_stands_twice_stays():
    twice = [1]
    info = {"twice": [twice, twice]}
    info |= {"self": info, "within": [info]}
    stored = events.plain(info)
    assert stored["twice"] == [[1], [1]]
    assert isinstance(stored["self"], str)
    assert isinstance(stored["within"][0], str)
    json.dumps(stored)
