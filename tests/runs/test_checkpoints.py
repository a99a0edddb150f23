"""A checkpoint is there completely or not at all."""

import contextlib
import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragen.errors import CheckpointError
from ragen.runs import checkpoints as module
from ragen.runs.checkpoints import Checkpoints, verify

SAVER = """
import os, sys
from pathlib import Path
from ragen.runs.checkpoints import Checkpoints
store = Checkpoints(Path(sys.argv[1]), keep=2)
start = max(store.steps(), default=0)
def write(folder, step):
    (folder / "sub").mkdir()
    for name in ("a.bin", "b.bin", "sub/c.bin"):
        with open(folder / name, "wb") as file:
            for _ in range(4):
                file.write(bytes([step % 251]) * 20000)
                file.flush()
print("ready", flush=True)
for step in range(start + 1, start + 100000):
    # every third save writes the newest step again: the replacing path must be as safe
    store.save(step, lambda folder: write(folder, step))
    if step % 3 == 0:
        store.save(step, lambda folder: write(folder, step))
    print("saved", flush=True)
"""


def fill(text: str, *names: str):
    def write(folder: Path) -> None:
        for name in names or ("weights.bin", "state.json"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    return write


def test_e7_sigkill_at_any_moment_of_saving_always_leaves_a_whole_checkpoint(tmp_path):
    chance = random.Random(7)
    folder = tmp_path / "checkpoints"
    Checkpoints(folder).save(1, lambda path: [(path / n).write_bytes(bytes([1]) * 80000) for n in ("a.bin", "b.bin")])
    newest = 1
    for _ in range(20):
        saver = subprocess.Popen([sys.executable, "-c", SAVER, str(folder)], stdout=subprocess.PIPE, env=os.environ)
        assert saver.stdout.readline() == b"ready\n"
        for _ in range(chance.randrange(3)):
            assert saver.stdout.readline() == b"saved\n"
        time.sleep(chance.uniform(0.0, 0.03))
        saver.send_signal(signal.SIGKILL)
        saver.wait()
        saver.stdout.close()
        found = Checkpoints(folder).latest()
        step = verify(found)
        assert step >= newest
        for file in found.rglob("*.bin"):
            assert file.read_bytes() == bytes([step % 251]) * 80000
        newest = step
        Checkpoints(folder).clean()
        assert not [p for p in folder.iterdir() if p.name.startswith(".")]
    assert newest > 5


@pytest.mark.parametrize("stage", ["between renames", "before latest", "before prune"])
def test_e7_a_kill_between_any_two_operations_of_the_commit_loses_nothing(tmp_path, monkeypatch, stage):
    store = Checkpoints(tmp_path, keep=1)
    store.save(1, fill("old"))

    class Killed(BaseException):
        pass

    def killed(*_args, **_kwargs):
        raise Killed

    rename = Path.rename
    if stage == "between renames":
        monkeypatch.setattr(
            Path, "rename", lambda self, to: killed() if self.name.startswith(".writing-") else rename(self, to)
        )
    elif stage == "before latest":
        monkeypatch.setattr(
            module, "write_text", lambda path, text: killed() if path.name == "latest" else path.write_text(text)
        )
    else:
        monkeypatch.setattr(Checkpoints, "_prune", killed)
    with pytest.raises(Killed):
        store.save(1 if stage == "between renames" else 2, fill("new"))
    monkeypatch.undo()
    found = store.latest()
    assert (found / "state.json").read_text() == ("old" if stage == "between renames" else "new")
    verify(found)
    store.save(3, fill("newer"))
    assert store.steps() == [3]
    assert verify(store.latest()) == 3


def test_only_the_last_few_are_kept_and_the_pointer_names_the_newest(tmp_path):
    store = Checkpoints(tmp_path, keep=2)
    for step in (5, 10, 15):
        store.save(step, fill(str(step)))
    assert store.steps() == [10, 15]
    assert (tmp_path / "latest").read_text() == "step-000015\n"
    assert store.latest() == store.path(15)
    store.drop_after(10)
    assert store.steps() == [10]


class Killed(BaseException):
    """Stands for SIGKILL: nothing but ``except BaseException`` sees it, and what that would clean up is not changed."""


def _killed_at(operation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the ``operation``-th change of a directory on, nothing is changed any more."""
    done = iter(range(10**6))

    def counted(change):
        def made(*args, **rest):
            if next(done) >= operation:
                raise Killed
            return change(*args, **rest)

        return made

    for owner, name in ((Path, "rename"), (Path, "mkdir"), (module, "write_text")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    monkeypatch.setattr(module.shutil, "rmtree", counted(module.shutil.rmtree))


@pytest.mark.parametrize("again", [False, True], ids=["new step", "same step"])
@pytest.mark.parametrize("operation", range(12))
def test_tidying_after_a_kill_comes_to_what_an_unbroken_save_comes_to(tmp_path, monkeypatch, operation, again):
    folder, save = tmp_path / "checkpoints", 15 if again else 20
    store = Checkpoints(folder, keep=2)
    for step in (5, 10, 15):
        store.save(step, fill(str(step)))
    _killed_at(operation, monkeypatch)
    with contextlib.suppress(Killed):
        store.save(save, fill("new"))
    monkeypatch.undo()
    found = store.latest()
    step, text = store.step_of(found), (found / "state.json").read_text()
    store.tidy(step)
    assert sorted(path.name for path in folder.iterdir()) == ["latest", *(f"step-{s:06d}" for s in (step - 5, step))]
    assert (folder / "latest").read_text() == f"step-{step:06d}\n"
    assert (store.latest() / "state.json").read_text() == text
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    store.tidy(step)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before, "what is in order is left alone"


def test_tidying_removes_what_is_later_or_too_much_and_does_without_a_folder(tmp_path):
    store = Checkpoints(tmp_path / "a", keep=9)
    store.tidy(3)
    for step in (1, 2, 3, 4):
        store.save(step, fill(str(step)))
    store.keep = 2
    store.tidy(3)
    assert store.steps() == [2, 3]
    assert (store.folder / "latest").read_text() == "step-000003\n"


def test_a_failed_write_leaves_the_earlier_checkpoint_and_no_rubbish(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, fill("one"))

    def broken(folder: Path) -> None:
        fill("half")(folder)
        raise RuntimeError("bang")

    with pytest.raises(RuntimeError, match="bang"):
        store.save(2, broken)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["latest", "step-000001"]


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "quota"),
        RuntimeError("I/O error: x (os error 28)"),
    ],
)
def test_a_full_disk_says_so_and_names_the_checkpoint_that_is_still_there(tmp_path, error):
    store = Checkpoints(tmp_path)
    store.save(1, fill("one"))

    def full(folder: Path) -> None:
        raise error

    with pytest.raises(CheckpointError, match=r"step 2.*disk is full.*step 1 is intact.*--resume.*run\.keep 1"):
        store.save(2, full)
    assert store.latest() == store.path(1)
    assert store.steps() == [1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_ends_in_the_same_message(tmp_path):
    store = Checkpoints(tmp_path)

    def full(folder: Path) -> None:
        with Path("/dev/full").open("w") as file:
            file.write("x" * 100000)

    with pytest.raises(CheckpointError, match="disk is full"):
        store.save(1, full)


def damage_missing(path: Path) -> None:
    (path / "weights.bin").unlink()


def damage_short(path: Path) -> None:
    (path / "weights.bin").write_text("on")


def damage_changed(path: Path) -> None:
    (path / "weights.bin").write_text("twx")


def damage_manifest(path: Path) -> None:
    (path / "manifest.json").write_text('{"format": 1, "step"')


def damage_foreign(path: Path) -> None:
    (path / "manifest.json").unlink()


def damage_future(path: Path) -> None:
    text = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(text.replace('"format": 1', '"format": 99'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (damage_missing, "'weights.bin' is missing"),
        (damage_short, "has 2 bytes instead of 3"),
        (damage_changed, "does not match its checksum"),
        (damage_manifest, "cannot be read"),
        (damage_foreign, "not a checkpoint of RAGEN"),
        (damage_future, "format 99"),
    ],
)
def test_a_damaged_or_foreign_checkpoint_is_named_and_passed_over(tmp_path, damage, said):
    store = Checkpoints(tmp_path)
    store.save(1, fill("one"))
    store.save(2, fill("two"))
    damage(store.path(2))
    with pytest.raises(CheckpointError, match=said):
        verify(store.path(2))
    assert store.latest() == store.path(1)
    damage(store.path(1)) if damage is not damage_short else (store.path(1) / "state.json").unlink()
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        store.latest()


def test_reading_the_latest_changes_nothing_so_a_running_save_is_safe_from_it(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, fill("one"))
    (tmp_path / ".writing-step-000002").mkdir()
    store.latest()
    assert (tmp_path / ".writing-step-000002").is_dir()


def test_no_checkpoint_at_all_is_said_plainly(tmp_path):
    with pytest.raises(CheckpointError, match="none has been written yet"):
        Checkpoints(tmp_path / "none").latest()
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        verify(tmp_path / "x")
