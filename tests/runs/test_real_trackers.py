"""The trackers' own libraries, offline and without keys; part of `make test-full`.

Each runs in a process of its own, as a run does: the libraries keep threads, processes and module-wide state.
"""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("default")]

RUN = """
import sys, pathlib
from ragen.config import load_config
from ragen.runs.trackers import require_trackers
from ragen.runs.directory import RunDirectory
root, name = sys.argv[1:3]
config = load_config({}, ["--run.root", root, "--run.name", "one", "--run.trackers", name])
require_trackers(config.run.trackers)
def steps(run, first, last):
    for step in range(first, last + 1):
        run.append_metrics(step, {"x": step * 1.0, "nothing": float("nan")})
run = RunDirectory.create(config)
run.write_eval("before", 0, {"success": 0.25, "success_interval": (0.125, 0.5)})
steps(run, 1, 4)
run.close()
run = RunDirectory.open(run.path)
run.cut_after(2)
steps(run, 3, 6)
run.write_eval("after", 6, {"success": 0.5, "success_interval": (0.25, 0.75)})
run.close()
"""
X = [(step, float(step)) for step in range(1, 7)]
SUCCESS = [(0, 0.25), (6, 0.5)]


def train(tmp_path: Path, name: str) -> Path:
    """Run and resume with one tracker, no network to be reached and secrets in sight; returns the run directory."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed: pip install -c constraints.txt -e '.[dev,{name}]'")
    nowhere = "http://127.0.0.1:9"
    hidden = {key: value for key, value in os.environ.items() if not key.startswith(("WANDB_", "MLFLOW_", "TRACKIO_"))}
    environment = hidden | {
        "HOME": str(tmp_path),
        "TRACKIO_DIR": str(tmp_path / "trackio"),
        "https_proxy": nowhere,
        "http_proxy": nowhere,
        "OPENAI_API_KEY": "sk-CANARY-1",
        "HF_TOKEN": "hf_CANARY-2",
        "WANDB_API_KEY": "CANARY".ljust(40, "0"),
    }
    command = [sys.executable, "-c", RUN, str(tmp_path / "runs"), name, "--key", "CANARY-3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "failed" not in done.stdout + done.stderr
    run = tmp_path / "runs" / "one"
    assert not [p for p in tmp_path.rglob("*") if p.is_file() and b"CANARY" in p.read_bytes()]  # H9
    return run


def test_mlflow_keeps_one_run_in_the_run_directory(tmp_path: Path) -> None:
    run = train(tmp_path, "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run / 'mlflow' / 'mlflow.db'}")
    (experiment,) = [each for each in client.search_experiments() if each.name == "ragen"]
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "one"
    assert found.info.status == "FINISHED"
    assert found.data.params["rollout.members"] == "16"
    for key, points in (("x", X), ("eval/success", SUCCESS)):
        assert [(m.step, m.value) for m in client.get_metric_history(found.info.run_id, key)] == points
    assert not client.get_metric_history(found.info.run_id, "nothing")


def test_trackio_keeps_one_run_in_its_local_store(tmp_path: Path) -> None:
    run = train(tmp_path, "trackio")
    number = json.loads((run / "trackers.json").read_text())["trackio"]["id"]
    code = (
        "import json\nfrom trackio.sqlite_storage import SQLiteStorage\n"
        f"print(json.dumps([SQLiteStorage.get_runs('ragen'), SQLiteStorage.get_logs('ragen', 'one-{number}')]))"
    )
    environment = os.environ | {"TRACKIO_DIR": str(tmp_path / "trackio")}
    told = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
    runs, rows = json.loads(told.splitlines()[-1])
    assert runs == [f"one-{number}"]
    assert [(row["step"], row["x"]) for row in rows if "x" in row] == X
    assert [(row["step"], row["eval/success"]) for row in rows if "eval/success" in row] == SUCCESS


def test_wandb_writes_offline_into_the_run_directory(tmp_path: Path) -> None:
    run = train(tmp_path, "wandb")
    rows = [row for file in sorted((run / "wandb").glob("offline-run-*/*.wandb")) for row in history(file)]
    assert [(row["step"], row["x"]) for row in rows if "x" in row] == X
    assert [(row["step"], row["eval/success"]) for row in rows if "eval/success" in row] == SUCCESS
    numbers = [row["_step"] for row in rows]
    assert numbers == sorted(set(numbers))  # also across the two files: `wandb sync` drops a row whose number falls
    ids = {file.stem for file in (run / "wandb").glob("offline-run-*/*.wandb")}
    assert ids == {f"run-{json.loads((run / 'trackers.json').read_text())['wandb']['id']}"}


def history(file: Path) -> Iterator[dict[str, Any]]:
    """The rows of a wandb file: a LevelDB log (blocks of 32 KiB; records of checksum, length, kind) of protocol buffers."""
    from wandb.proto import wandb_internal_pb2

    data, at, record = file.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        record += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            message = wandb_internal_pb2.Record.FromString(record)
            record = b""
            if message.WhichOneof("record_type") == "history":
                yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in message.history.item}


def test_going_online_without_a_key_is_refused_at_the_start(tmp_path: Path) -> None:
    if find_spec("wandb") is None:
        pytest.skip("wandb is not installed: pip install -c constraints.txt -e '.[dev,wandb]'")
    code = "from ragen.runs.trackers import require_trackers; require_trackers(['wandb'])"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    environment |= {"HOME": str(tmp_path), "WANDB_MODE": "online"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "wandb knows no API key: run `wandb login`, or unset WANDB_MODE" in done.stderr
