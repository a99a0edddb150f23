"""One process at a time writes to a run directory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ragen.errors import CheckpointError
from ragen.runs.disk import clear_disk_errors

LOCK = ".lock"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the directory ``path`` for this process; CheckpointError names the process that already does.

    The system lets go of the lock when its process ends, however it ends. A file system without locks is used without.
    """
    handle = _acquire(path)
    try:
        yield
    finally:
        with suppress(OSError):
            (path / LOCK).unlink(missing_ok=True)
        os.close(handle)


def _acquire(path: Path) -> int:
    file = path / LOCK
    while True:
        with clear_disk_errors("the run's lock", file):
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        if not _lock(handle):
            owner = os.read(handle, 20).decode(errors="replace").strip()
            os.close(handle)
            raise CheckpointError(
                f"the run directory '{path}' is in use by {f'process {owner}' if owner else 'another process'}: wait for "
                "its end, stop it, or start a run of another name (--run.name)"
            )
        if _is_there(handle, file):
            with clear_disk_errors("the run's lock", file):
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()}\n".encode())
            return handle
        os.close(handle)  # its last owner removed it between our opening and our locking it


def _lock(handle: int) -> bool:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock

        flock(handle, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        pass
    return True


def _is_there(handle: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), file.stat())
    except FileNotFoundError:
        return False
