"""One process at a time has a run directory."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from ragen.config import load_config
from ragen.errors import CheckpointError
from ragen.runs.directory import RunDirectory, claimed_place, make_place
from ragen.runs.lock import LOCK, locked
from ragen.runs.resume import resumed, write_settings

HOLDER = """
import sys, time
from pathlib import Path
from ragen.runs.lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""


def config(tmp_path, name="one"):
    return load_config("bandit-starpo-s-grpo-tiny", ["--run.root", str(tmp_path), "--run.name", name])


@pytest.fixture
def holder(tmp_path):
    """Another process that has the run directory ``one``."""
    (tmp_path / "one").mkdir()
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path / "one")], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def begin(config):
    with claimed_place(config):
        pass


def go_on(config):
    run = RunDirectory(make_place(config), config)
    run.write_config()
    with resumed(run.path, config):
        pass


@pytest.mark.parametrize("way", [begin, go_on])
def test_b1_a_directory_in_use_is_refused_with_the_process_that_has_it_and_left_alone(tmp_path, holder, way):
    before = sorted(path.name for path in (tmp_path / "one").iterdir())
    with pytest.raises(CheckpointError, match=rf"in use by process {holder.pid}.*--run.name"):
        way(config(tmp_path))
    assert sorted({path.name for path in (tmp_path / "one").iterdir()} - {"config.yaml"}) == before == [LOCK]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_dead_process_holds_nobody_up(tmp_path, holder, number):
    holder.send_signal(number)
    holder.wait()
    with claimed_place(config(tmp_path)) as place:
        assert (place / LOCK).read_text() == f"{os.getpid()}\n"


def test_two_in_one_process_are_kept_apart_too_and_the_lock_goes_with_its_owner(tmp_path):
    with locked(tmp_path), pytest.raises(CheckpointError, match=f"process {os.getpid()}"), locked(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass


def test_of_many_that_start_under_one_name_exactly_one_goes_on(tmp_path):
    barrier, begun, refused = threading.Barrier(8), [], []

    def start():
        barrier.wait()
        try:
            with claimed_place(config(tmp_path)) as place:
                begun.append(RunDirectory.create(config(tmp_path), place))
        except CheckpointError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(begun), len(refused)) == (1, 7)
    assert RunDirectory.open(tmp_path / "one").config == begun[0].config


def test_of_many_that_start_without_a_name_each_gets_a_place_of_its_own(tmp_path):
    barrier, places = threading.Barrier(8), []

    def start():
        barrier.wait()
        places.append(make_place(config(tmp_path, ""), "label"))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({str(place) for place in places}) == 8
    assert all(place.name.startswith("label-seed0-") for place in places)


@pytest.mark.parametrize("root_is_there", [False, True])
def test_a_start_that_fails_leaves_nothing(tmp_path, root_is_there):
    root = tmp_path / "runs"
    if root_is_there:
        root.mkdir()
    with pytest.raises(RuntimeError, match="no model"), claimed_place(config(root)):
        raise RuntimeError("no model")
    assert root.exists() == root_is_there
    assert not list(tmp_path.rglob("one"))


def test_an_empty_directory_that_a_kill_left_is_taken(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / LOCK).write_text("1\n")
    with claimed_place(config(tmp_path)) as place:
        RunDirectory.create(config(tmp_path), place)
    assert [path.name for path in place.iterdir()] == ["config.yaml"]


def test_a_run_that_goes_on_is_held_until_it_ends(tmp_path):
    run = RunDirectory.create(config(tmp_path))
    run.checkpoints.save(0, lambda folder: write_settings(folder, run.config))
    with (
        resumed(run.path, run.config) as point,
        pytest.raises(CheckpointError, match="in use"),
        resumed(run.path, run.config),
    ):
        pytest.fail("two of them")
    assert point.step == 0
    with resumed(run.path, run.config):
        pass
