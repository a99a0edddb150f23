"""Writing files so that a crash or a full disk never leaves half of one under its final name."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ragen.errors import CheckpointError

_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def clear_disk_errors(what: str, path: Path, advice: str = "") -> Iterator[None]:
    """Turn a full disk (also as reported by libraries in other words) into a CheckpointError that says what to do."""
    try:
        yield
    except Exception as error:
        if not is_full(error):
            raise
        free = shutil.disk_usage(_existing(path)).free
        raise CheckpointError(
            f"the disk is full: {what} could not be written to '{path}' ({free / 2**20:.0f} MiB free). Free some space, "
            f"set run.keep to 1, or choose another run.root.{' ' if advice else ''}{advice}"
        ) from error


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk or the quota is full; safetensors reports it as text only."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    text = str(error).lower()
    return any(f"os error {code}" in text for code in _FULL) or "no space left on device" in text


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all (temporary file, fsync, rename)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with clear_disk_errors(path.name, path):
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Make renames inside a directory durable; a file system that cannot is left as it is."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _existing(path: Path) -> Path:
    return next((p for p in (path, *path.absolute().parents) if p.exists()), Path.cwd())
