"""One process at a time writes to a run directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from ragen.errors import CheckpointError
from ragen.filelock import acquire, release
from ragen.runs.disk import clear_disk_errors

LOCK = ".lock"


@contextmanager
def locked(path: Path, what: str = "run", naming: str = "--run.name") -> Iterator[None]:
    """Hold the directory ``path`` of a run (or ``what``) for this process; CheckpointError names who already does."""
    file = path / LOCK
    with clear_disk_errors("the lock", file):
        handle = acquire(file, wait=False)
    if handle is None:
        owner = _owner(file)
        raise CheckpointError(
            f"the {what} directory '{path}' is in use by {f'process {owner}' if owner else 'another process'}: wait for "
            f"its end, stop it, or start one of another name ({naming})"
        )
    try:
        with clear_disk_errors("the lock", file):
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
    finally:
        release(file, handle)


def writer(path: Path) -> int | None:
    """The process that writes to the run directory ``path``, by its number, or None (a killed one leaves its number)."""
    owner = _owner(path / LOCK)
    return int(owner) if owner.isascii() and owner.isdigit() and psutil.pid_exists(int(owner)) else None


def _owner(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8", errors="replace")[:20].strip()
    return ""
