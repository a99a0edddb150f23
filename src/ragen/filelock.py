"""A lock between processes: a file that the system lets go of when the process that holds it ends, however it ends."""

import os
from contextlib import suppress
from pathlib import Path


def acquire(file: Path, *, wait: bool) -> int | None:
    """Lock ``file`` (made if it is not there); returns a handle for ``release``; None where another has it and not ``wait``.

    A file system without locks is used without. Raises OSError where the file cannot be opened.
    """
    while True:
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            held = _lock(handle, wait=wait)
            if held and _is_there(handle, file):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)
        if not held:
            return None
        # else its last owner removed it between our opening and our locking it


def release(file: Path, handle: int) -> None:
    """Remove the file and let go of it."""
    with suppress(OSError):
        file.unlink(missing_ok=True)
    os.close(handle)


def _lock(handle: int, *, wait: bool) -> bool:
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock

        flock(handle, LOCK_EX if wait else LOCK_EX | LOCK_NB)
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
