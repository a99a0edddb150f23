"""Checkpoints that are there completely or not at all.

A checkpoint is written into a hidden directory, every file is synced, a manifest of sizes and checksums comes last, then
one rename makes it visible, then ``latest`` moves, and only then are older ones pruned. A kill at any moment therefore
leaves the earlier checkpoint; leftovers are removed where the run is resumed (``tidy``).
"""

import contextlib
import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from ragen.errors import CheckpointError
from ragen.runs.disk import clean_temporary, clear_disk_errors, refusal, sync_folder, write_text

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"^step-(\d{6,})$")
_WRITING, _REPLACED = ".writing-", ".replaced-"


class Checkpoints:
    """The checkpoints of one run, in ``folder``; the last ``keep`` are kept.

    With ``every`` the last ``keep`` of those steps are, and beside them the newest of all: one made where a run was stopped
    drives out none that a rollback may need.
    """

    def __init__(self, folder: Path, keep: int = 2, every: int = 1) -> None:
        self.folder, self.keep, self.every = folder, keep, every

    def save(self, step: int, write: Callable[[Path], None]) -> Path:
        """Commit a checkpoint; ``write`` fills an empty directory. On any failure the earlier ones are untouched."""
        final = self.path(step)
        temporary, replaced = (self.folder / f"{mark}{final.name}" for mark in (_WRITING, _REPLACED))
        with clear_disk_errors(f"the checkpoint of step {step}", self.folder, self._still_there()):
            self.folder.mkdir(parents=True, exist_ok=True)
            self.clean()
            temporary.mkdir()
            try:
                write(temporary)
                _seal(temporary, step)
            except BaseException:
                shutil.rmtree(temporary, ignore_errors=True)
                raise
            if final.exists():
                final.rename(replaced)
            temporary.rename(final)
            sync_folder(self.folder)
            write_text(self.folder / "latest", final.name + "\n")
        shutil.rmtree(replaced, ignore_errors=True)
        self._prune()
        return final

    def steps(self) -> list[int]:
        """Steps of the visible checkpoints, oldest first."""
        if not self.folder.is_dir():
            return []
        found = (_NAME.match(path.name) for path in self.folder.iterdir() if path.is_dir())
        return sorted(int(match[1]) for match in found if match)

    def regular_steps(self) -> list[int]:
        """Those of ``steps`` that were due, not made because a run was stopped there."""
        return [step for step in self.steps() if step % self.every == 0]

    def path(self, step: int) -> Path:
        """Where the checkpoint of ``step`` lies."""
        return self.folder / f"step-{step:06d}"

    def latest(self) -> Path:
        """The newest complete checkpoint, verified; a damaged one is passed over for the one before it. Changes nothing."""
        problems = []
        for path in self._candidates():
            try:
                verify(path)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            return path
        why = "; ".join(problems) or "none has been written yet"
        raise CheckpointError(
            f"no complete checkpoint in '{self.folder}': {why}. There is nothing to go on from: begin anew with the command "
            "of the run"
        )

    def step_of(self, path: Path) -> int:
        """The step of a checkpoint that ``latest`` gave."""
        return int(path.name.removeprefix(_REPLACED).removeprefix("step-"))

    def drop_after(self, step: int) -> None:
        """Remove checkpoints later than ``step`` (a run that goes on from an earlier one makes them again)."""
        for later in [s for s in self.steps() if s > step]:
            _remove(self.path(later))

    def tidy(self, step: int) -> None:
        """What saving the checkpoint of ``step`` comes to, also where a kill came before its end; later ones are removed."""
        if not self.folder.is_dir():
            return
        with clear_disk_errors("the list of checkpoints", self.folder):
            self.clean()
            self.drop_after(step)
            self._prune()
            pointer, steps = self.folder / "latest", self.steps()
            newest = f"{self.path(steps[-1]).name}\n" if steps else ""
            if newest and not (pointer.is_file() and pointer.read_text(encoding="utf-8", errors="replace") == newest):
                write_text(pointer, newest)

    def clean(self) -> None:
        """Remove what an interrupted save left; one that was being replaced comes back if its successor is not there."""
        for path in self._candidates():
            if path.name.startswith(_REPLACED):
                path.rename(path.with_name(path.name.removeprefix(_REPLACED)))
        for pattern in (f"{_WRITING}*", f"{_REPLACED}*"):
            for path in list(self.folder.glob(pattern)):
                shutil.rmtree(path, ignore_errors=True)
        clean_temporary(self.folder)

    def _candidates(self) -> list[Path]:
        """Visible checkpoints, newest first; a kill between two renames leaves one under its name for being replaced."""
        by_step = {self.step_of(path): path for path in self.folder.glob(f"{_REPLACED}step-*") if path.is_dir()}
        by_step |= {step: self.path(step) for step in self.steps()}
        return [by_step[step] for step in sorted(by_step, reverse=True)]

    def _prune(self) -> None:
        steps = self.steps()
        regular = self.regular_steps()
        for step in steps:
            if step not in regular[-self.keep :] and (self.every == 1 or step != steps[-1]):
                _remove(self.path(step))

    def _still_there(self) -> str:
        steps = self.steps()
        intact = f"The checkpoint of step {steps[-1]} is intact: go on from it with --resume. " if steps else ""
        return f"{intact}run.keep 1 needs the least space; run.root names another place"


def verify(path: Path) -> int:
    """The step of a complete checkpoint; raises CheckpointError where a file is missing, short or changed."""
    if not path.is_dir():
        raise CheckpointError(f"there is no checkpoint at '{path}'")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        version, step = int(manifest["format"]), int(manifest["step"])
        listed = {name: (int(size), int(checksum)) for name, (size, checksum) in manifest["files"].items()}
    except FileNotFoundError:
        raise CheckpointError(f"'{path}' is not a checkpoint of RAGEN: it has no {MANIFEST}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"'{path}': {MANIFEST} cannot be read ({refusal(error) or error!r})") from None
    if version != FORMAT:
        raise CheckpointError(f"'{path}' has checkpoint format {version}; this version of RAGEN reads format {FORMAT}")
    for name, (size, checksum) in listed.items():
        file = path / name
        if not file.is_file():
            raise CheckpointError(f"'{path}' is incomplete: '{name}' is missing")
        if file.stat().st_size != size:
            raise CheckpointError(f"'{path}' is damaged: '{name}' has {file.stat().st_size} bytes instead of {size}")
        try:
            found = _checksum(file)
        except OSError as error:
            raise CheckpointError(f"'{path}': '{name}' cannot be read ({refusal(error)})") from None
        if found != checksum:
            raise CheckpointError(f"'{path}' is damaged: the content of '{name}' does not match its checksum")
    return step


def _seal(folder: Path, step: int) -> None:
    files = {}
    for path in _files(folder):
        _sync_file(path)
        files[path.relative_to(folder).as_posix()] = (path.stat().st_size, _checksum(path))
    manifest = {"format": FORMAT, "step": step, "files": files}
    write_text(folder / MANIFEST, json.dumps(manifest, indent=1) + "\n")
    for directory in {path.parent for path in _files(folder)}:
        sync_folder(directory)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _sync_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def _remove(path: Path) -> None:
    """Remove a checkpoint: it stops being visible before its files go."""
    hidden = path.with_name(f"{_WRITING}{path.name}")
    with contextlib.suppress(OSError):
        shutil.rmtree(hidden, ignore_errors=True)
        path.rename(hidden)
        shutil.rmtree(hidden, ignore_errors=True)
