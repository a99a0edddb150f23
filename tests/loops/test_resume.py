"""k steps + resume to N equals N steps straight through, bit for bit (cases E1–E5, M6); a kill loses only unsaved steps."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import ragen
from ragen.errors import CheckpointError
from ragen.loops import gather as gathering
from ragen.rollout.collect import Collection, collect
from ragen.rollout.runner import EpisodeSpec
from ragen.runs.directory import RunDirectory
from ragen.samplers.hf import HFSampler

SMALL = {
    "model.dtype": "float32",
    "env.max_turns": 2,
    "warmup.data": "format",
    "warmup.demonstrations": 1024,
    "warmup.batch": 32,
    "warmup.epochs": 2,
    "warmup.learning_rate": 4e-3,
    "rollout.groups": 3,
    "rollout.members": 4,
    "rollout.max_new_tokens": 32,
    "optim.trajectories": 5,
    "optim.online_k": 2,
    "optim.learning_rate": 3e-4,
    "eval.episodes": 0,
    "steps": 4,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "grpo": {},
    "ppo-head-kl": {"advantage.name": "gae", "loss.kl_coef": 0.01, "loss.value_clip": 0.2},
    "ppo-separate-critic": {"advantage.name": "gae", "optim.critic": "separate"},
    "lora-kl": {"model.lora.rank": 4, "loss.kl_coef": 0.01},
    "kl-in-reward": {"advantage.name": "gae", "loss.kl_coef": 0.1, "loss.kl_in": "reward", "loss.kl_estimator": "k1"},
    "dpo": {"advantage.name": "none", "loss.name": "dpo", "loss.pairing": "all", "optim.learning_rate": 1e-4},
    "gspo-tis-single": {"loss.name": "gspo", "loss.tis_cap": 2.0, "rollout.context": "single"},
    "chord": {"loss.sft_coef": 0.9, "loss.sft_coef_end": 0.1, "loss.sft_decay_steps": 3, "loss.sft_demonstrations": 6},
    "reinforce": {"advantage.name": "reinforce", "advantage.baseline_decay": 0.5},
    "gigpo": {"advantage.name": "gigpo", "rollout.context": "window", "rollout.window": 1},
    "vapo-critic-first": {"advantage.name": "vapo", "optim.critic_warmup_steps": 1, "optim.warmup_steps": 4},
    "soft-window": {"filter.strategy": "soft", "rollout.context": "single"},
    "resample-replay": {
        "rollout.resample": 1,
        "filter.metric": "entropy",
        "filter.strategy": "top_k",
        "filter.value": 2,
        "replay.size": 3,
        "replay.ratio": 1.0,
        "optim.learning_rate": 1e-4,
    },
    "pool-curriculum-replay-ppo": {
        "rollout.instances": 5,
        "rollout.explore": 0.3,
        "curriculum.stages": [{"env": {"max_turns": 1}, "until": 1}, {"env": {"size": 2}, "advance_at": 0.1}],
        "curriculum.window": 2,
        "replay.size": 4,
        "advantage.name": "gae",
        "optim.learning_rate": 1e-4,
    },
}


@pytest.fixture(autouse=True)
def small_model(mini: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SMALL, "model.name", str(mini))


def settings(root: Path, name: str, **more: Any) -> dict[str, Any]:
    return SMALL | {"run.root": str(root), "run.name": name} | more


def recorded(run: Path) -> list[Mapping[str, Any]]:
    """Everything logged that is not a clock or a memory figure."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("time/", "memory/"))} for row in rows]


def states(run: Path) -> dict[str, Any]:
    last = RunDirectory.open(run).checkpoints.latest()
    return {f"{file.name}:{k}": v for file in sorted(last.glob("*.safetensors")) for k, v in load_file(file).items()}


def assert_same_run(a: Path, b: Path) -> None:
    assert recorded(a) == recorded(b)
    left, right = states(a), states(b)
    assert left.keys() == right.keys()
    assert all(left[key].equal(right[key]) for key in left)
    for file in sorted((a / "trajectories").iterdir()):
        assert file.read_text() == (b / "trajectories" / file.name).read_text()


@pytest.mark.parametrize("rank", [0, 4])
def test_every_step_is_played_with_what_the_step_before_has_learnt(tmp_path: Path, rank: int) -> None:
    more = {
        "warmup.data": "none",
        "steps": 3,
        "model.lora.rank": rank,
        "optim.learning_rate": 1e-2,
        "loss.entropy_coef": 0.1,
    }
    result = ragen.train({"preset": "frozen_lake-starpo-grpo"}, settings(tmp_path, "run", **more))
    assert all(row["update/mismatch_max"] < 1e-3 for row in result.history)
    assert len({row["update/entropy"] for row in result.history}) == 3


@pytest.mark.parametrize("variant", VARIANTS)
def test_stopping_and_resuming_changes_nothing(tmp_path: Path, variant: str) -> None:
    source = {"preset": "frozen_lake-starpo-grpo"}
    more = VARIANTS[variant]
    straight = ragen.train(source, settings(tmp_path, "straight", **more))
    first = ragen.train(source, settings(tmp_path, "stopped", **more) | {"steps": 2})
    assert (straight.steps, first.steps) == (4, 2)
    resumed = ragen.train(source, settings(tmp_path, "stopped", **more), resume=first.run)
    assert (resumed.steps, len(resumed.history)) == (4, 2)  # E2, E4: the later steps only
    assert len(recorded(straight.run)) == 4
    assert any(row["rollout/return_std"] > 0 for row in recorded(straight.run))  # there was something to learn from
    if "replay.size" in more:
        assert all(row["replay/groups"] > 0 for row in recorded(resumed.run)[2:])
    if "curriculum.stages" in more:
        assert len({row["collect/stage"] for row in recorded(resumed.run)}) > 1
    assert_same_run(straight.run, resumed.run)


def test_e1_e4_a_resumed_run_collects_the_later_steps_alone_on_later_instances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collected: list[list[EpisodeSpec]] = []
    played: list[int] = []

    def counted(*args: Any, **rest: Any) -> Collection:
        collected.append(list(args[3]))
        return collect(*args, **rest)

    def sampled(self: HFSampler, requests: Any, params: Any) -> Any:
        played.append(len(requests))
        return generate(self, requests, params)

    generate = HFSampler.generate
    monkeypatch.setattr(gathering, "collect", counted)
    monkeypatch.setattr(HFSampler, "generate", sampled)
    source, more = {"preset": "bandit-starpo-grpo"}, {"warmup.data": "none", "rollout.max_new_tokens": 4}
    ragen.train(source, settings(tmp_path, "straight", **more) | {"env.max_turns": 1})
    straight, turns = list(collected), list(played)
    assert (len(straight), len(turns)) == (4, 4)
    assert len({spec.instance_seed for specs in straight for spec in specs}) == 4 * 3  # P = 3 new ones each step
    collected.clear()
    first = ragen.train(source, settings(tmp_path, "stopped", **more) | {"env.max_turns": 1, "steps": 2})
    assert collected == straight[:2]
    collected.clear(), played.clear()
    ragen.train(source, settings(tmp_path, "stopped", **more) | {"env.max_turns": 1}, resume=first.run)
    assert collected == straight[2:]
    assert played == turns[2:]


def test_resuming_with_other_settings_is_refused(tmp_path: Path) -> None:
    first = ragen.train({"preset": "frozen_lake-starpo-grpo"}, settings(tmp_path, "one") | {"steps": 1})
    with pytest.raises(CheckpointError, match="optim"):
        ragen.train(
            {"preset": "frozen_lake-starpo-grpo"},
            settings(tmp_path, "one", **{"optim.learning_rate": 0.5}),
            resume=first.run,
        )


SCRIPT = """
import sys, json, ragen
ragen.train({"preset": "frozen_lake-starpo-grpo"}, json.loads(sys.argv[1]), resume=sys.argv[2] or None)
"""


def test_a_kill_at_any_moment_loses_only_the_steps_since_the_last_checkpoint(tmp_path: Path) -> None:
    wanted = settings(tmp_path, "killed", **{"run.checkpoint_every": 1, "run.keep": 3, "steps": 6})
    straight = ragen.train({"preset": "frozen_lake-starpo-grpo"}, wanted | {"run.name": "straight"})
    run = tmp_path / "killed"
    for attempt in range(4):
        resume = str(run) if (run / "checkpoints" / "latest").exists() else ""
        if not resume and run.exists():
            subprocess.run(["rm", "-rf", str(run)], check=True)
        worker = subprocess.Popen([sys.executable, "-c", SCRIPT, json.dumps(wanted), resume], env=os.environ.copy())
        deadline = time.monotonic() + 120
        goal = 1 + attempt
        while (
            worker.poll() is None and time.monotonic() < deadline and not (run / "checkpoints" / f"step-{goal:06d}").exists()
        ):
            time.sleep(0.005)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        assert RunDirectory.open(run).checkpoints.latest().name >= f"step-{goal:06d}"
    resumed = ragen.train({"preset": "frozen_lake-starpo-grpo"}, wanted, resume=run)
    assert resumed.steps == 6
    assert_same_run(straight.run, run)
