"""Whatever the system refuses ends in one message with advice, at every place a run writes."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.config import load_config
from ragen.errors import CheckpointError
from ragen.runs.directory import RunDirectory, claimed_place
from ragen.runs.disk import clear_disk_errors, refusal, write_text

REFUSED = [errno.EACCES, errno.EROFS, errno.EFBIG, errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.EMFILE]


@pytest.mark.parametrize("number", REFUSED, ids=errno.errorcode.get)
@pytest.mark.parametrize("library", [False, True])
def test_every_refusal_becomes_one_message_with_its_reason(tmp_path, number, library):
    reason = os.strerror(number)
    error = RuntimeError(f"I/O error: {reason} (os error {number})") if library else OSError(number, reason)
    message = rf"the file could not be written to .*{reason}.*choose another place"
    with pytest.raises(CheckpointError, match=message), clear_disk_errors("the file", tmp_path):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("bang"), ValueError("bad"), KeyError("x"), CheckpointError("told")])
def test_errors_of_another_kind_pass_as_they_are(tmp_path, error):
    assert refusal(error) is None
    with pytest.raises(type(error)) as caught, clear_disk_errors("the file", tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.parametrize("name", ["one", ""])
@pytest.mark.parametrize("place", ["file/x", "nul\0", "a" * 300])
def test_b21_a_place_that_cannot_be_made_is_told_before_anything_else(tmp_path, place, name):
    (tmp_path / "file").write_text("x")
    config = load_config("bandit-starpo-s-grpo-tiny", ["--run.name", name])
    config = config.model_copy(update={"run": config.run.model_copy(update={"root": str(tmp_path / place)})})
    with pytest.raises(CheckpointError, match="run directory could not be written"), claimed_place(config):
        pytest.fail("there is no such place")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("place", ["file/x", "nul\0"])
def test_b21_every_writer_says_that_it_cannot_write(tmp_path, place):
    (tmp_path / "file").write_text("x")
    run = RunDirectory(tmp_path / place, load_config("bandit-starpo-s-grpo-tiny"))
    for write in (
        run.write_config,
        lambda: run.write_provenance(threads=1),
        lambda: run.append_metrics(1, {}),
        lambda: run.write_trajectories(1, []),
        lambda: run.write_eval("after", 1, {}),
        lambda: run.checkpoints.save(1, lambda folder: None),
    ):
        with pytest.raises(CheckpointError, match="could not be written"):
            write()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


SAVE = """
import sys
from pathlib import Path
import torch
from safetensors.torch import save_file
from ragen.errors import CheckpointError
from ragen.runs.checkpoints import Checkpoints
try:
    Checkpoints(Path(sys.argv[1])).save(1, lambda folder: save_file({"x": torch.zeros(1 << 20)}, folder / "x.safetensors"))
except CheckpointError as error:
    sys.exit(str(error))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs ulimit")
def test_b23_a_limit_on_file_sizes_is_told_as_such(tmp_path):
    command = 'ulimit -f 1000; exec "$0" -c "$1" "$2"'
    words = ["bash", "-c", command, sys.executable, SAVE, str(tmp_path)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "the checkpoint of step 1 could not be written" in done.stderr
    assert os.strerror(errno.EFBIG) in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_refused_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    write_text(file, "old")

    def refuse(handle):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(CheckpointError, match=r"a\.json could not be written"):
        write_text(file, "new")
    assert [path.name for path in Path(tmp_path).iterdir()] == ["a.json"]
    assert file.read_text() == "old"
