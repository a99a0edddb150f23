"""Runs on disk for the report: a byte-level tokenizer, two-turn episodes, and texts that would like to be markup."""

from pathlib import Path
from typing import Any

import pytest

from ragen.config import load_config
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.metrics.evaluation import EvalReport
from ragen.runs.directory import RunDirectory

HOSTILE = (
    "<script>alert(1)</script></script><img src=x onerror=alert(2)>--><!-- ]]> &lt; {{SCRIPT}} \\u003c/script> "
    "\u2028\u2029 \x00 \u202ertl\u202c é€😀 \ud800"
)
GRID = "__O\n_P_\nG__"
AFTER = "__O\nP__\nG__"


class Maker:
    """Makes runs under ``root``; all texts of an episode are encoded by one tokenizer."""

    def __init__(self, root: Path, tokenizer: Any) -> None:
        self.root, self.tokenizer = root, tokenizer

    def reply(self, text: str, number: int = 0, stop: StopReason = StopReason.END) -> Completion:
        clean = text.encode("utf-8", "replace").decode()
        ids = (*self.tokenizer.encode(clean, add_special_tokens=False), self.tokenizer.eos_token_id)
        logprobs = tuple(-0.3 * i - 0.01 * number for i in range(len(ids)))
        return Completion(ids, logprobs, tuple(0.2 * i for i in range(len(ids))), text, stop)

    def turn(self, k: int, text: str = "I go.</think><answer>Up</answer>", number: int = 0, **changes: Any) -> Turn:
        base = {
            "prompt_ids": tuple(self.tokenizer.encode(f"Turn {k}", add_special_tokens=False)),
            "extends": k > 0,
            "completion": self.reply(text, number),
            "observation": f"Walk.\n{GRID if k == 0 else AFTER}\nThink.",
            "actions": ("Left",),
            "valid": True,
            "reward": 0.0,
            "info": {"next_observation": AFTER if k == 0 else GRID},
        }
        return Turn(**{**base, **changes})

    def trajectory(self, member: int, *, success: bool = False, seed: int = 2**62 + 1, **changes: Any) -> Trajectory:
        turns = (
            self.turn(0, number=member),
            self.turn(1, f"Now {member}.</think><answer>Up</answer>", reward=float(success)),
        )
        base = {"env": "frozen_lake", "turns": turns, "end": EndReason.TERMINATED, "success": success}
        return Trajectory(**{**base, "instance_seed": seed, "member": member, **changes})

    def groups(self, step: int, groups: int = 3, members: int = 4) -> list[Group]:
        first = (step - 1) * groups
        return [
            Group(first + g, tuple(self.trajectory(m, success=m == 0, seed=2**62 + first + g) for m in range(members)))
            for g in range(groups)
        ]

    def hostile(self, member: int = 9) -> Trajectory:
        turn = self.turn(
            0, HOSTILE, observation=HOSTILE, actions=(HOSTILE,), valid=False, info={"next_observation": HOSTILE}
        )
        return self.trajectory(member, turns=(turn,), env=HOSTILE, error=HOSTILE, end=EndReason.ERROR)

    def run(
        self, name: str = "one", steps: int = 3, groups: int = 3, members: int = 4, *, tokenizer: bool = True
    ) -> RunDirectory:
        words = ["--run.root", str(self.root), "--run.name", name, "--steps", "5", "--rollout.groups", str(groups)]
        run = RunDirectory.create(load_config("frozen_lake-starpo-s-grpo-tiny", words))
        run.write_provenance(device="cpu", dtype="float32", threads=1, step=0)
        if tokenizer:
            run.checkpoints.save(1, self.tokenizer.save_pretrained)
        for step in range(1, steps + 1):
            self.add(run, step, self.groups(step, groups, members))
        return run

    def add(self, run: RunDirectory, step: int, groups: list[Group], errors: tuple[Trajectory, ...] = ()) -> None:
        """What training leaves of a step; every second group is trained on."""
        numbers = {"rollout/success": 0.1 * step, "rollout/return_mean": 0.2, "rollout/entropy": 1.0 / step}
        numbers |= {"rollout/return_std": 0.3, "rollout/return_std_min": 0.1, "rollout/return_std_max": 0.5}
        run.append_metrics(step, numbers | {"update/grad_norm": 10.0**-step, "time/rollout_s": 2.0, "time/update_s": 1.0})
        kept = {(g.index, t.member): (0.5, -0.25) for g in groups[::2] for t in g.trajectories}
        run.write_trajectories(step, groups, errors, kept)


def evaluation(env: str = "frozen_lake", success: float = 0.25, **changes: Any) -> dict[str, Any]:
    """A stored evaluation."""
    base = {"env": env, "settings": {}, "model": "m", "episodes": 8, "samples": 1, "temperature": 0.5, "seed": 1}
    base |= {"success": success, "success_interval": (0.1, 0.6), "total_return": 0.2, "return_interval": (0.1, 0.3)}
    base |= {"task_return": 0.2, "method": "Wilson", "valid_format": 1.0, "turns": 2.0, "tokens": 9.0, "errors": 0}
    return EvalReport(**{**base, **changes}).to_dict()


@pytest.fixture
def maker(tmp_path: Path, chatml_tokenizer: Any) -> Maker:
    return Maker(tmp_path / "runs", chatml_tokenizer)


@pytest.fixture
def run(maker: Maker) -> RunDirectory:
    return maker.run()
