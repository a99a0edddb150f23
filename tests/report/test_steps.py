"""Packing a step: the page holds the recorded ids, mask, log-probabilities and entropies, of a sample and of the odd."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.metrics.intervals import wilson
from ragen.report.drawing import Drawing
from ragen.report.steps import SAMPLE, Packer, bands, sample
from ragen.rollout.segments import segments
from ragen.runs.events import StoredTrajectory


def decode(ids):
    return "".join(chr(0x4E00 + i) for i in ids)


def played(member=0, *, turns=None, success=False, end=EndReason.BUDGET, error=""):
    if turns is None:
        completion = Completion((member, 2), (-0.5, -0.25), (0.1, 0.2), f"reply {member}", StopReason.END)
        turns = (Turn((1,), False, completion, "o", ("Up",), True, 1.0 * success),)
    return Trajectory("e", 7, member, turns, end, success, error=error)


def step_of(groups, members, **kinds):
    return [StoredTrajectory(g, played(m, **kinds), (0.5,)) for g in range(groups) for m in range(members)]


@st.composite
def episodes(draw):
    numbers = st.floats(-30, 0)
    turns = []
    for k in range(draw(st.integers(1, 4))):
        sampled = draw(st.lists(st.integers(0, 500), min_size=1, max_size=5))
        prompt = draw(st.lists(st.integers(0, 500), max_size=4))
        lists = [tuple(draw(st.lists(numbers, min_size=len(sampled), max_size=len(sampled)))) for _ in range(2)]
        completion = Completion(tuple(sampled), lists[0], tuple(-x for x in lists[1]), decode(sampled), StopReason.END)
        turns.append(Turn(tuple(prompt), k > 0 and draw(st.booleans()), completion, "o", (), draw(st.booleans()), 0.5))
    return played(turns=tuple(turns))


@given(episodes())
def test_the_page_holds_the_segments_token_for_token(trajectory):
    packed = Packer(decode, Drawing(), 0, all_tokens=True).pack(1, [StoredTrajectory(0, trajectory)])
    record = json.loads(json.dumps(packed.body))[0]
    rows = segments(trajectory)
    assert len(record["rows"]) == len(rows)
    for row, segment in zip(record["rows"], rows, strict=True):
        assert [i for span in row for i in span[1]] == segment.token_ids.tolist()
        turn_ids = [span[0] for span in row for _ in span[1]]
        assert turn_ids == segment.turn_ids.tolist()
        assert [turn >= 0 for turn in turn_ids] == segment.mask.tolist()
        sampled = [span for span in row if span[0] >= 0]
        logprobs = np.array([value for span in sampled for value in span[3]]) / 10_000
        assert np.abs(logprobs - segment.logprobs[segment.mask]).max() <= 0.51 / 10_000
        entropies = [e for k in sorted(set(turn_ids) - {-1}) for e in trajectory.turns[k].completion.entropies]
        held = np.array([value for span in sampled for value in span[4]]) / 10_000
        assert np.abs(held - entropies).max() <= 0.51 / 10_000
        for span in row:
            assert "".join(span[2]) == decode(span[1])


def test_columns_tell_what_is_stored():
    lost = StoredTrajectory(None, played(3, turns=(), end=EndReason.ERROR, error="boom"))
    stored = [StoredTrajectory(5, played(0, success=True), (0.5,)), StoredTrajectory(5, played(1)), lost]
    index = Packer(decode, Drawing(), 0).pack(4, stored).index
    assert index["step"] == 4
    assert index["group"] == [5, 5, -1]
    assert index["member"] == [0, 1, 3]
    assert index["seed"] == ["7", "7", "7"]  # as text: a JavaScript number cannot hold 63 bits
    assert index["success"] == [1, 0, 0]
    assert index["ret"] == [1.0, 0.0, 0.0]
    assert index["trained"] == [1, 0, 0]
    assert index["turns"] == index["valid"] == [1, 1, 0]
    assert [list(EndReason)[end] for end in index["end"]] == [EndReason.BUDGET, EndReason.BUDGET, EndReason.ERROR]
    assert index["tokens"] == [2, 2, 0]
    assert index["flags"] == [0, 0, 1]
    assert {len(column) for name, column in index.items() if isinstance(column, list)} == {3}


def test_a_turn_has_its_parts_and_advantage():
    completion = Completion((1,), (-0.1,), (0.1,), "t", StopReason.LENGTH)
    turn = Turn(
        (1,),
        False,
        completion,
        "seen",
        ("Up", "Up"),
        False,
        0.0,
        penalty=-0.1,
        invalid_actions=2,
        info={"next_observation": "n"},
    )
    stored = StoredTrajectory(0, played(turns=(turn,)), (math.nan,))
    record = Packer(decode, Drawing(), 0).pack(1, [stored]).body[0]
    assert record["turns"] == [
        {
            "seen": "seen",
            "fresh": True,
            "said": "t",
            "stop": "length",
            "actions": ["Up", "Up"],
            "valid": False,
            "skipped": 2,
            "parts": {"reward": 0.0, "penalty": -0.1},
            "score": None,
            "adv": None,
            "next": "n",
        }
    ]


@pytest.mark.parametrize(("groups", "members", "kept"), [(8, 16, 16), (8, 4, 16), (8, 5, 20), (40, 1, 16), (2, 3, 6)])
def test_the_sample_is_of_whole_groups_and_large_enough(groups, members, kept):
    stored = step_of(groups, members)
    chosen = sample(stored, 0, 1)
    assert len(chosen) == kept
    for g in {stored[place].group for place in chosen}:
        assert {place for place, item in enumerate(stored) if item.group == g} <= chosen
    assert kept == groups * members or kept >= SAMPLE


def test_the_sample_depends_on_seed_and_step_only_and_reaches_every_group():
    stored = step_of(8, 16)
    assert sample(stored, 0, 1) == sample(stored, 0, 1)
    groups = {min(sample(stored, 0, step)) // 16 for step in range(100)}
    assert groups == set(range(8))
    assert {min(sample(stored, seed, 1)) // 16 for seed in range(100)} == set(range(8))


def test_tokens_are_kept_for_the_sample_and_for_every_odd_episode():
    stored = step_of(8, 16)
    invalid = played(
        3, turns=(Turn((1,), False, Completion((1,), (0.0,), (0.0,), "x", StopReason.END), "o", (), False, 0.0),)
    )
    stored += [StoredTrajectory(9, invalid, (0.1,)), StoredTrajectory(None, played(1, end=EndReason.ERROR, error="boom"))]
    packed = Packer(decode, Drawing(), 3).pack(2, stored)
    chosen = sample(stored, 3, 2)
    for place, (kept, record) in enumerate(zip(packed.index["detail"], packed.body, strict=True)):
        wanted = place in chosen or place >= 128
        assert bool(kept) == wanted
        assert (record["rows"] is not None) == wanted
    assert sum(Packer(decode, Drawing(), 3, all_tokens=True).pack(2, stored).index["detail"]) == len(stored)


def test_bands_are_the_intervals_of_the_steps_groups():
    stored = [StoredTrajectory(g, played(0, success=g == 0)) for g in range(4)]
    stored.append(StoredTrajectory(None, played(1, success=True)))  # lost: in no mean
    found = bands(stored)
    assert found["rollout/success"] == pytest.approx(wilson(1, 4), abs=1e-5)
    low, high = found["rollout/return_mean"]
    assert 0.0 <= low < 0.25 < high <= 1.0
    assert bands(stored[:1])["rollout/return_mean"] is None  # one group says nothing about the spread
    assert bands(stored[-1:]) == {"rollout/success": None, "rollout/return_mean": None}


@settings(max_examples=20)
@given(st.lists(episodes(), min_size=1, max_size=6))
def test_all_of_a_step_is_json_without_nan(found):
    packed = Packer(decode, Drawing(), 0).pack(1, [StoredTrajectory(g, t, None) for g, t in enumerate(found)])
    json.dumps([packed.index, packed.body], allow_nan=False)
