"""Rewards beside the task's in a run: refused at start-up where they cannot work, recorded, and no part of evaluation."""

from pathlib import Path
from typing import Any

import pytest

import ragen
from ragen.errors import ConfigError
from ragen.runs.directory import RunDirectory

TINY: dict[str, Any] = {
    "model.name": "tiny",
    "model.dtype": "float32",
    "warmup.data": "none",
    "rollout.groups": 2,
    "rollout.members": 3,
    "rollout.max_new_tokens": 8,
    "eval.episodes": 0,
    "steps": 1,
}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"reward.process": "state_match"},
            r"'state_match' checks .* 'bandit' has none: take .*frozen_lake.*plan_agreement",
        ),
        ({"reward.process": "plan_agrement"}, r"unknown process reward 'plan_agrement': did you mean 'plan_agreement'"),
        ({"reward.process": "plan_agreement", "rollout.thinking": False}, r"rollout.thinking is false: set"),
        ({"reward.overlong_buffer": 9}, r"reward.overlong_buffer is 9, but a reply has at most 8 tokens"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_begins(tmp_path: Path, settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ragen.train("bandit-starpo-grpo", TINY | settings | {"run.root": str(tmp_path)})
    assert not list(tmp_path.iterdir())


def test_training_pays_them_records_them_and_evaluation_knows_nothing_of_them(tmp_path: Path) -> None:
    """An untrained model answers nothing valid and spends its budget: score 0, the whole overlong penalty."""
    shaping = {
        "reward.process": "state_match",
        "reward.coef": 0.5,
        "reward.overlong_buffer": 4,
        "reward.overlong_coef": 0.25,
    }
    settings = TINY | shaping | {"env.max_turns": 2, "eval.episodes": 2, "run.root": str(tmp_path)}
    result = ragen.train("frozen_lake-starpo-grpo", settings)
    (metrics,) = result.history
    stored = RunDirectory.open(result.run).trajectories(1)
    turns = [turn for item in stored for turn in item.trajectory.turns]
    assert {turn.process_score for turn in turns} == {0.0}
    assert [turn.overlong_penalty for turn in turns] == [
        -0.25 * min(max(len(turn.completion.token_ids) - 4, 0), 4) / 4 for turn in turns
    ]
    assert metrics["rollout/process_score_mean"] == metrics["rollout/process_reward_mean"] == 0.0
    assert metrics["rollout/overlong_penalty_mean"] < -0.2
    extra = metrics["rollout/overlong_penalty_mean"] * metrics["rollout/turns"]
    assert metrics["rollout/return_mean"] == pytest.approx(-0.1 * metrics["rollout/turns"] + extra)
    assert result.after is not None
    assert result.after.total_return == pytest.approx(-0.1 * result.after.turns)
