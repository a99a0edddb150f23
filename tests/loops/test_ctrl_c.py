"""Ctrl-C ends a run cleanly: the step is finished, saved, and the way to go on is printed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import ragen
from ragen.config import load_config
from ragen.loops.train import train
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Silent
from ragen.runs.resume import left_behind


@pytest.mark.e2e
def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    words = [
        "bandit-starpo-grpo",
        "--model",
        "tiny",
        "--rollout.groups",
        "2",
        "--rollout.members",
        "2",
        "--eval.episodes",
        "0",
    ]
    words += ["--rollout.max_new_tokens", "8", "--steps", "5000", "--run.root", str(tmp_path), "--run.name", "stopped"]
    command = [sys.executable, "-m", "ragen.cli.main", "train", *words]
    worker = subprocess.Popen(command, env=os.environ.copy(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    run = tmp_path / "stopped"
    deadline = time.monotonic() + 200
    while worker.poll() is None and time.monotonic() < deadline and not (run / "metrics.jsonl").exists():
        time.sleep(0.05)
    worker.send_signal(signal.SIGINT)
    output, _ = worker.communicate(timeout=100)
    assert worker.returncode == 130, output
    assert "Stopping after this step" in output
    assert f"ragen train --resume {run}" in output.replace("\n", "")
    opened = RunDirectory.open(run)
    done = len(opened.metrics())
    assert opened.checkpoints.steps() == [done]
    more = ragen.train(run / "config.yaml", {"steps": done + 1}, resume=run)
    assert more.steps == done + 1


def test_what_is_left_of_a_run_that_was_given_up_is_told(tmp_path: Path) -> None:
    place = tmp_path / "run"
    assert "nothing of it is kept" in left_behind(place)
    run = RunDirectory(place, load_config("bandit-starpo-grpo-tiny"))
    run.write_config()
    assert "--run.name" in left_behind(place)
    assert "--resume" not in left_behind(place)
    run.checkpoints.save(3, lambda folder: (folder / "weights").write_text("w"))
    assert f"ragen train --resume {place}" in left_behind(place)


def test_ctrl_c_in_the_preparation_says_what_is_left_and_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    said: list[str] = []
    listener = Silent()
    monkeypatch.setattr(listener, "on_message", said.append, raising=False)
    monkeypatch.setattr("ragen.loops.train.open_session", interrupted)
    config = load_config("bandit-starpo-grpo-tiny", ["--run.root", str(tmp_path / "runs"), "--run.name", "a"])
    with pytest.raises(KeyboardInterrupt):
        train(config, listener=listener)
    assert said
    assert "nothing of it is kept" in said[-1]
    assert not (tmp_path / "runs").exists()
