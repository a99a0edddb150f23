"""The run directory: layout, names, resume, and nothing secret in it."""

import json
import math
import sys

import pytest

from ragen.config import load_config
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.errors import CheckpointError, ConfigError
from ragen.runs.directory import RunDirectory, default_name, find_run


def config(tmp_path, *words):
    return load_config("bandit-starpo-s-grpo-tiny", ["--run.root", str(tmp_path / "runs"), "--run.name", "one", *words])


def group(index=0):
    turn = Turn((1,), False, Completion((2,), (-0.1,), (0.2,), "a", StopReason.END), "o", ("A",), True, 1.0)
    return Group(index, (Trajectory("bandit", 5, 0, (turn,), EndReason.TERMINATED, True),))


def test_the_layout_is_the_documented_one_and_the_config_reads_back(tmp_path):
    run = RunDirectory.create(config(tmp_path))
    run.write_provenance(device="cpu", dtype="float32", threads=1)
    run.append_metrics(1, {"rollout/success": 0.5, "update/kl": math.nan})
    run.write_trajectories(1, [group()], [], {(0, 0): [0.7]})
    run.write_eval("before", 0, {"success": 0.25, "interval": (0.1, math.inf)})
    run.checkpoints.save(1, lambda folder: (folder / "x").write_text("x"))
    files = sorted(p.relative_to(run.path).as_posix() for p in run.path.rglob("*") if p.is_file())
    assert files == [
        "checkpoints/latest",
        "checkpoints/step-000001/manifest.json",
        "checkpoints/step-000001/x",
        "config.yaml",
        "eval/before.json",
        "metrics.jsonl",
        "provenance.json",
        "trajectories/step-000001.jsonl",
    ]
    again = RunDirectory.open(run.path)
    assert again.config == run.config == config(tmp_path)
    assert again.metrics() == [{"step": 1, "rollout/success": 0.5, "update/kl": None}]
    assert again.trajectories()[0].advantages == (0.7,)
    assert again.trajectories()[0].trajectory == group().trajectories[0]
    stored = {"step": 0, "success": 0.25, "interval": [0.1, None]}
    assert json.loads((run.path / "eval/before.json").read_text()) == stored
    assert again.evaluations() == {"before": stored}


def test_provenance_names_versions_machine_seeds_and_each_session(tmp_path):
    run = RunDirectory.create(config(tmp_path, "--seed", "3"))
    run.write_provenance(device="cpu", threads=1)
    run.write_provenance(device="cuda", resumed_at=4)
    first, second = json.loads((run.path / "provenance.json").read_text())
    assert first["seeds"] == {"run": 3, "eval": 1000}
    assert {"torch", "transformers", "numpy"} <= set(first["versions"])
    assert first["python"] == sys.version.split()[0]
    assert first["threads"] >= 1
    assert first["cpu"]
    assert (first["device"], second["device"], second["resumed_at"]) == ("cpu", "cuda", 4)


def test_h9_no_environment_variable_or_argument_reaches_the_run_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    monkeypatch.setenv("HF_TOKEN", "hf_CANARY-2")
    monkeypatch.setattr(sys, "argv", ["ragen", "--key", "CANARY-3"])
    run = RunDirectory.create(config(tmp_path))
    run.write_provenance(device="cpu")
    run.append_metrics(1, {"num_tokens": 4.0})
    run.write_trajectories(1, [group()])
    run.write_eval("after", 1, {"success": 1.0})
    written = {p: p.read_text() for p in run.path.rglob("*") if p.is_file()}
    assert len(written) == 5
    assert not [p for p, text in written.items() if "CANARY" in text]
    assert "num_tokens" in written[run.path / "metrics.jsonl"]


def test_a_directory_in_the_way_names_both_ways_out(tmp_path):
    first = RunDirectory.create(config(tmp_path))
    with pytest.raises(CheckpointError, match=r"--resume .*one.*--run.name"):
        RunDirectory.create(config(tmp_path))
    assert first.path.is_dir()
    (tmp_path / "runs" / "empty").mkdir()
    assert RunDirectory.create(config(tmp_path, "--run.name", "empty")).path.name == "empty"
    (tmp_path / "runs" / "file").write_text("x")
    with pytest.raises(CheckpointError, match="file"):
        RunDirectory.create(config(tmp_path, "--run.name", "file"))


@pytest.mark.parametrize("name", ["../../x", "a/b", "..", ".hidden", "/abs", "a\\b", "-rf", "a\nb", "x" * 300, "nul\0"])
def test_h11_a_name_that_is_a_path_is_refused_before_anything_is_made(tmp_path, name):
    wanted = config(tmp_path)
    wanted = wanted.model_copy(update={"run": wanted.run.model_copy(update={"name": name})})
    with pytest.raises(ConfigError, match=r"run.name"):
        RunDirectory.create(wanted)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConfigError, match="evaluation"):
        RunDirectory(tmp_path, wanted).write_eval(name, 0, {})


def test_runs_without_a_name_get_one_and_two_in_the_same_second_get_two(tmp_path):
    unnamed = config(tmp_path, "--run.name", "")
    paths = {RunDirectory.create(unnamed).path for _ in range(3)}
    assert len(paths) == 3
    assert all(path.name.startswith("bandit-grpo-seed0-20") for path in paths)
    assert RunDirectory.open(paths.pop()).config.run.name.startswith("bandit-grpo-seed0-")
    assert default_name("a b/c", 2).startswith("a_b_c-seed2-20")


def test_resuming_forgets_what_came_after_the_checkpoint(tmp_path):
    run = RunDirectory.create(config(tmp_path, "--run.keep", "9", "--steps", "9"))
    for step in (1, 2, 3):
        run.append_metrics(step, {"x": float(step)})
        run.write_trajectories(step, [group()])
        for name in (f"step-{step}", f"step-{step}-bandit-rev"):
            run.write_eval(name, step, {"success": 0.1})
        run.checkpoints.save(step, lambda folder: (folder / "x").write_text("x"))
    run.write_eval("before", 0, {"success": 0.0})
    run.write_eval("after", 3, {"success": 0.0})
    run.cut_after(2)
    assert [m["step"] for m in run.metrics()] == [1, 2]
    assert run.trajectory_steps() == [1, 2]
    assert run.checkpoints.steps() == [1, 2]
    assert set(run.evaluations()) == {"before", "step-1", "step-1-bandit-rev", "step-2", "step-2-bandit-rev"}


def test_n3_an_evaluation_after_the_run_is_one_of_its_step_once_the_run_goes_on(tmp_path):
    run = RunDirectory.create(config(tmp_path, "--steps", "2"))
    for name in ("after", "after-bandit-rev"):
        run.write_eval(name, 2, {"success": 0.5})
    run.cut_after(2)
    assert set(run.evaluations()) == {"after", "after-bandit-rev"}  # nothing is left to do: they stay what they are
    longer = RunDirectory(run.path, run.config.model_copy(update={"steps": 5}))
    longer.cut_after(2)
    assert set(longer.evaluations()) == {"step-2", "step-2-bandit-rev"}


def test_what_a_kill_left_half_written_goes_when_the_run_goes_on(tmp_path):
    run = RunDirectory.create(config(tmp_path))
    for folder in ("eval", "trajectories", "checkpoints", "."):
        (run.path / folder).mkdir(exist_ok=True)
        (run.path / folder / ".x.json.tmp").write_text("{")
    run.cut_after(0)
    assert not list(run.path.rglob(".*"))


def test_a_run_is_found_by_path_or_name_and_the_nearest_is_named(tmp_path):
    run = RunDirectory.create(config(tmp_path))
    assert find_run(run.path) == find_run("one", tmp_path / "runs") == run.path
    with pytest.raises(CheckpointError, match="did you mean 'one'"):
        find_run("onne", tmp_path / "runs")
    with pytest.raises(CheckpointError, match="there is no directory"):
        find_run("x", tmp_path / "nowhere")
    for name in ("x" * 300, "nul\0", ""):
        with pytest.raises(CheckpointError, match="is not a run directory"):
            find_run(name, tmp_path / "runs")


def test_trajectories_that_are_not_there_say_which_are(tmp_path):
    run = RunDirectory.create(config(tmp_path))
    with pytest.raises(CheckpointError, match="trajectories_every"):
        run.trajectories()
    for step in (1, 4):
        run.write_trajectories(step, [group()])
    with pytest.raises(CheckpointError, match=r"step 2 .*stored: 1, 4"):
        run.trajectories(2)
