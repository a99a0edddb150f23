"""Which groups are remembered and which come back; and that a checkpoint holds them exactly."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.config import load_config
from ragen.config.collection import ReplayConfig
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.errors import CheckpointError, ConfigError
from ragen.loops.carried import REPLAY, Carried, read_carried
from ragen.loops.replay import age, remembered, replay_metrics, replayed
from ragen.loops.step import hand_on


def group(index: int, version: int, rewards: tuple[float, ...] = (0.0, 1.0)) -> Group:
    logprobs = (-0.1, math.log(1 / 3))  # numbers that no short text holds
    turns = [
        Turn((1, 2), True, Completion((3, 4), logprobs, (0.5, 0.7), "x", StopReason.END), "o", (), True, r) for r in rewards
    ]
    made = [Trajectory("e", 7, m, (t,), EndReason.TERMINATED, True, version) for m, t in enumerate(turns)]
    return Group(index, tuple(made))


def indices(groups: tuple[Group, ...]) -> list[int]:
    return [each.index for each in groups]


def test_the_newest_live_groups_are_remembered() -> None:
    replay = ReplayConfig(size=3, max_age=9)
    buffer = (group(0, 0), group(1, 0))
    kept = [group(4, 1), group(5, 1, (1.0, 1.0)), group(6, 1)]  # the second is flat: nothing to learn from
    assert indices(remembered(buffer, kept, replay, step=1)) == [1, 4, 6]
    assert remembered(buffer, kept, ReplayConfig(size=0), step=1) == ()


@pytest.mark.parametrize(("weights", "remain"), [([0.0, 0.0], []), ([0.5, 0.0], [4])])
def test_groups_of_weight_0_did_not_train_and_are_not_remembered(weights: list[float], remain: list[int]) -> None:
    """Demonstrations alone teach, or a soft filter by the task's return finds a group flat whose total returns differ."""
    config = load_config("bandit-starpo-grpo", {"replay.size": 4})
    after = hand_on(config, Carried(flat_in_row=2), [group(4, 1), group(5, 1)], np.array(weights), step=1, success=0.0)
    assert indices(after.replay) == remain
    assert after.flat_in_row == 0  # something taught


def test_groups_too_old_for_the_next_step_are_forgotten() -> None:
    replay = ReplayConfig(size=9, max_age=2)
    buffer = (group(0, 0), group(1, 1), group(2, 2))
    assert indices(remembered(buffer, [group(3, 3)], replay, step=3)) == [2, 3]  # in step 4 they are 2 and 1 steps old


def test_a_share_of_the_fresh_groups_comes_back_rounded_up() -> None:
    buffer = tuple(group(i, 0) for i in range(8))
    for fresh, wanted in ((0, 0), (1, 1), (4, 2), (5, 3), (40, 8)):
        assert len(replayed(buffer, ReplayConfig(size=8, ratio=0.5), fresh=fresh, step=1, seed=0)) == wanted
    assert replayed(buffer, ReplayConfig(size=8, max_age=2), fresh=4, step=3, seed=0) == ()
    assert replayed((), ReplayConfig(size=8), fresh=4, step=3, seed=0) == ()


@given(
    versions=st.lists(st.integers(0, 6), max_size=9),
    step=st.integers(7, 9),
    fresh=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_each_group_comes_back_at_most_once_and_never_too_old(versions: list[int], step: int, fresh: int, seed: int) -> None:
    buffer = tuple(group(i, version) for i, version in enumerate(sorted(versions)))
    replay = ReplayConfig(size=9, ratio=0.75, max_age=4)
    chosen = replayed(buffer, replay, fresh=fresh, step=step, seed=seed)
    assert indices(chosen) == sorted(set(indices(chosen)))
    assert all(1 <= age(each, step) <= 4 for each in chosen)
    assert len(chosen) == min(math.ceil(0.75 * fresh), sum(step - version <= 4 for version in versions))
    assert chosen == replayed(buffer, replay, fresh=fresh, step=step, seed=seed)


def test_every_group_has_the_same_chance() -> None:
    buffer = tuple(group(i, 0) for i in range(4))
    drawn = [replayed(buffer, ReplayConfig(size=4), fresh=2, step=1, seed=seed)[0].index for seed in range(800)]
    assert all(drawn.count(i) == pytest.approx(200, abs=45) for i in range(4))  # 3.7σ


def test_metrics_count_trajectories_and_steps() -> None:
    old, kept = [group(0, 1), group(1, 2)], [group(5, 4, (0.0, 1.0, 2.0, 0.0))]
    on = ReplayConfig(size=1)
    assert replay_metrics(old, kept, on, step=4) == {"replay/groups": 2.0, "replay/share": 0.5, "replay/age": 2.5}
    assert replay_metrics([], kept, on, step=4) == {"replay/groups": 0.0, "replay/share": 0.0}
    assert replay_metrics([], kept, ReplayConfig(), step=4) == {}


def written(folder: Path, carried: Carried, **changed: Any) -> Path:
    state = {"extra": {"step": 3, "carried": carried.record() | changed}}
    (folder / "state.json").write_text(json.dumps(state))
    carried.write_replay(folder)
    return folder


def test_what_is_carried_comes_back_exactly(tmp_path: Path) -> None:
    old = (group(4, 1), group(9, 2, (0.1, 0.30000000000000004, 1e-9)))
    full = Carried(2, 1, 0.7, 0.9, 40, 17, (0, 3), (8, 12), (0.1, 1 / 3), old)
    assert read_carried(written(tmp_path, full), 3) == full
    (tmp_path / REPLAY).unlink()
    assert read_carried(written(tmp_path, Carried()), 3) == Carried()


def test_a_checkpoint_with_parts_missing_is_refused(tmp_path: Path) -> None:
    full = Carried(replay=(group(4, 1), group(5, 1)))
    written(tmp_path, full)
    with pytest.raises(CheckpointError, match="after which step"):
        read_carried(tmp_path, 4)
    text = (tmp_path / REPLAY).read_text().splitlines(keepends=True)
    (tmp_path / REPLAY).write_text("".join(text[:2]))
    with pytest.raises(CheckpointError, match="names 2 groups to replay and holds 1"):
        read_carried(tmp_path, 3)
    state = json.loads((tmp_path / "state.json").read_text())
    del state["extra"]["carried"]["cursor"]
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="it lacks cursor"):
        read_carried(tmp_path, 3)


def test_replay_with_truncated_sampling_is_refused() -> None:
    for key, value in (("rollout.top_p", 0.9), ("rollout.top_k", 5), ("rollout.min_p", 0.1)):
        with pytest.raises(ConfigError, match=r"set rollout.top_p 1, rollout.top_k 0"):
            load_config({"preset": "bandit-starpo-grpo", "replay.size": 4, key: value})
