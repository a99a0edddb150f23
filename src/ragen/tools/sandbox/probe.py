"""The sandbox's proof of itself, run in it before anything else: tries each wall and prints ``closed``, or what is open.

``FACTS`` stands in front of this text when it is run: files of the host that must be ``hidden``, the ``asker``'s process
number and the ``memory`` limit in bytes.
"""

import ctypes
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

FACTS: dict[str, Any] = globals().get("FACTS", {})
LIBC = ctypes.CDLL(None, use_errno=True)


def refused(act: Callable[[], object]) -> bool:
    """Whether the act fails."""
    try:
        act()
    except (OSError, MemoryError, RuntimeError):
        return True
    return False


def write(path: str) -> None:
    """Write a file."""
    with open(path, "w") as file:  # noqa: PTH123
        file.write("x")


def many_threads() -> None:
    """Start more threads than the limit of the probe allows."""
    stop = threading.Event()
    started = [threading.Thread(target=stop.wait) for _ in range(8)]
    try:
        for thread in started:
            thread.start()
    finally:
        stop.set()


def call(*arguments: int) -> None:
    """A system call by number; the errors of a call that is let through count as let through."""
    if LIBC.syscall(*map(ctypes.c_long, arguments)) != -1 or ctypes.get_errno() != 1:
        return
    raise PermissionError


MOUNT, PTRACE = (165, 101) if os.uname().machine == "x86_64" else (40, 117)
WALLS: dict[str, Callable[[], object]] = {
    "sockets": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "local sockets": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
    "the asking process": lambda: os.kill(FACTS["asker"], 0),
    "new processes": os.fork,
    "other programs": lambda: os.execv("/bin/sh", ["sh", "-c", "echo other programs"]),  # noqa: S606
    "files outside /tmp": lambda: write("/outside"),
    "Python's library": lambda: write(f"{os.path.dirname(os.__file__)}/outside"),  # noqa: PTH120
    "mount": lambda: call(MOUNT, 0, 0, 0, 0, 0),
    "ptrace": lambda: call(PTRACE, 0, 0, 0, 0),
    "memory": lambda: bytearray(FACTS["memory"]),
    "threads": many_threads,
    "root": lambda: os.setuid(0),
}


def open_walls() -> list[str]:
    """The walls that do not hold."""
    found = [name for name, act in WALLS.items() if not refused(act)]
    found += [path for path in FACTS["hidden"] if os.path.lexists(path)]
    if 0 in (os.getuid(), os.geteuid(), os.getgid(), os.getegid()):
        found.append("root")
    return found


if __name__ == "__main__":
    write("/tmp/inside")  # noqa: S108 - the scratch directory must work
    print("open: " + ", ".join(names) if (names := open_walls()) else "closed")  # noqa: T201
