"""End to end: the tiny policy learns; the real 135M model trains, saves, loads and evaluates."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from tests.loops.conftest import OneWord

import ragen
from ragen.envs import Observation, find_environment
from ragen.errors import ConfigError, EnvironmentFault
from ragen.metrics import METRICS
from ragen.metrics.intervals import paired_bootstrap
from ragen.models.resolve import resolve_model
from ragen.runs.directory import RunDirectory
from ragen.seeding import derive


@pytest.mark.e2e
def test_the_tiny_policy_learns_the_bandit(tmp_path: Path) -> None:
    """On the same fixed instances success rises far, and the return so much that its 95 % intervals do not meet."""
    settings = {"steps": 20, "run.root": str(tmp_path), "eval.episodes": 128, "eval.samples": 8}
    result = ragen.train("bandit-starpo-s-grpo-tiny", settings)
    assert result.before is not None
    assert result.after is not None
    assert result.before.instances == result.after.instances
    before, after = (np.mean(report.outcomes, axis=1) for report in (result.before, result.after))
    low, _ = paired_bootstrap(before, after)
    assert low > 0.2
    assert result.after.valid_format > 0.9
    assert result.before.return_interval[1] < result.after.return_interval[0]
    logged = {key for row in result.history for key in row}
    assert logged <= METRICS.keys()


@pytest.mark.e2e
@pytest.mark.smollm2
def test_the_real_model_trains_saves_and_evaluates(tmp_path: Path) -> None:
    """One step on SmolLM2-135M without warm-up; its checkpoint is a plain Hugging Face directory (case E8)."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settings = {
        "steps": 1,
        "warmup.data": "none",
        "filter.strategy": "none",
        "rollout.groups": 2,
        "rollout.members": 4,
        "rollout.max_new_tokens": 16,
        "eval.episodes": 0,
        "run.root": str(tmp_path),
    }
    result = ragen.train("bandit-starpo-s-grpo-small", settings)
    metrics = result.history[0]
    assert metrics["rollout/valid_format"] == 0.0  # the model follows no format by itself
    assert metrics["rollout/return_mean"] == pytest.approx(-0.1)
    assert math.isfinite(metrics["update/grad_norm"])
    assert metrics["update/mismatch_mean"] < 0.1
    checkpoint = RunDirectory.open(result.run).checkpoints.latest()
    AutoModelForCausalLM.from_pretrained(checkpoint)
    assert AutoTokenizer.from_pretrained(checkpoint).chat_template
    report = ragen.evaluate(checkpoint, settings={"eval.episodes": 4, "rollout.max_new_tokens": 8})
    assert report.episodes == 4
    assert report.success == 0.0


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


def test_b31_flat_groups_skip_the_update_and_end_the_run_with_a_reason(tmp_path: Path) -> None:
    """An untrained model never answers validly: every return is −0.1, so nothing can be learned."""
    settings = TINY | {"steps": 9, "filter.max_flat_steps": 3, "run.root": str(tmp_path)}
    result = ragen.train("bandit-starpo-s-grpo", settings)
    assert result.steps == 3
    assert "flat 3 steps in a row" in result.stopped
    assert [h["update/skipped"] for h in result.history] == [1.0, 1.0, 1.0]
    assert [h["update/optimizer_steps"] for h in result.history] == [0.0, 0.0, 0.0]
    checkpoint = RunDirectory.open(result.run).checkpoints.latest()
    start, end = (load_file(path / "model.safetensors") for path in (resolve_model("tiny"), checkpoint))
    assert start.keys() == end.keys()
    assert all(start[name].equal(end[name]) for name in start)
    assert load_file(checkpoint / "optimizer.safetensors") == {}
    assert json.loads((checkpoint / "state.json").read_text())["optimizer"]["steps"] == 0


def test_group_size_one_with_a_group_relative_rule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rollout\.members is 1.*set rollout\.members to 2"):
        ragen.train("bandit-starpo-grpo", TINY | {"rollout.members": 1, "run.root": str(tmp_path)})
    assert not list(tmp_path.iterdir())


class Broken(OneWord):
    """Raises on the first step of every second episode, or of all."""

    reward = 1.0
    always = False
    count = 0

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        Broken.count += 1
        if self.always or Broken.count % 2:
            raise ValueError("no such room")
        return Observation("Say yes.")


def test_f5_faulty_episodes_are_counted_and_stored_but_not_trained(tmp_path: Path) -> None:
    result = ragen.train("bandit-starpo-grpo", TINY | {"run.root": str(tmp_path), "rollout.members": 4}, env=Broken)
    assert result.history[0]["rollout/errors"] == 4.0
    stored = RunDirectory.open(result.run).trajectories(1)
    assert sum(s.group is None for s in stored) == 4
    assert all("no such room" in s.trajectory.error for s in stored if s.group is None)


def test_an_environment_that_never_works_ends_with_its_own_words(tmp_path: Path) -> None:
    class Hopeless(Broken):
        always = True

    with pytest.raises(EnvironmentFault, match="no such room"):
        ragen.train("bandit-starpo-grpo", TINY | {"run.root": str(tmp_path)}, env=Hopeless)


def test_c16_evaluation_is_paired_across_variants_and_reports_reference_players(tmp_path: Path) -> None:
    settings = TINY | {"eval.episodes": 6}
    plain = ragen.evaluate("tiny", {"env": {"name": "sokoban"}}, settings)
    symbols = ragen.evaluate("tiny", {"env": {"name": "sokoban-symbols"}}, settings)
    assert plain.instances == symbols.instances
    assert plain.players["optimal"].success == symbols.players["optimal"].success == plain.ceiling == 1.0
    assert plain.players["random"].success < 1.0
    assert json.dumps(plain.to_dict())


def test_c11_a_report_carries_all_settings_of_the_environment_and_the_seeds_of_its_instances(tmp_path: Path) -> None:
    spec = {"name": "frozen_lake-slip08", "size": 3, "max_turns": 2}
    settings = TINY | {"eval.episodes": 3, "eval.seed": 77, "steps": 0, "run.root": str(tmp_path)}
    result = ragen.train({"env": spec}, settings)
    assert result.before is not None
    stored = RunDirectory.open(result.run).evaluations()["before"]
    told = json.loads(json.dumps(find_environment(spec).settings.model_dump()))
    assert (told["size"], told["success_rate"], told["max_turns"], told["frozen"]) == (3, 0.8, 2, 0.8)
    assert stored["settings"] == told
    assert stored["env"] == "frozen_lake-slip08"
    assert (stored["seed"], stored["temperature"], stored["samples"]) == (77, 0.5, 1)
    assert stored["instances"] == [derive(77, "eval", "instance", index) for index in range(3)]
    assert list(result.before.instances) == stored["instances"]


def test_pass_at_k_and_clustered_intervals_with_several_samples(tmp_path: Path) -> None:
    report = ragen.evaluate("tiny", {"env": {"name": "bandit"}}, TINY | {"eval.episodes": 3, "eval.samples": 4})
    assert [len(row) for row in report.outcomes] == [4, 4, 4]
    assert report.pass_at_k == 0.0
    assert "clustered by instance" in report.method
