"""Build the walls around a program and run it, in three processes that leave nothing behind.

The *launcher* leaves the host's namespaces and starts the *keeper*, process 1 of the new ones. The keeper builds a file
system of its own, gives up every privilege and starts the *program*, which limits itself, closes the door (seccomp) and
runs the code. When the keeper ends, for whatever reason, the kernel kills all that is left. The keeper ends with the
program, at the time limit, or when whoever asked is gone (its pipe closes).

Reports go through a pipe as JSON objects, one a line: ``fault`` (a wall could not be built); or ``started``, and then
``exit`` (the code, or −signal), ``cpu_s`` and ``timed_out``.
"""

import json
import os
import resource
import select
import signal
import sys
from typing import Any

from . import kernel
from .kernel import Fault
from .program import run
from .syscalls import ARCHES

NOBODY = 65534
FIRST_FREE_USER = 2_000_000_000  # above what any system hands out
PLAN, BLANK, SCRATCH = 0, "/proc", "/tmp"  # noqa: S108
SETUP_FAILED = 70


def main(report: int, parent: int) -> int:
    """Build, run, report; what it returns is the program's exit code in the program, 0 elsewhere."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # process 1 is not hit by signals that it does not handle
    try:
        kernel.die_with_parent(parent)
        plan = json.loads(_line(PLAN))
        arch = ARCHES[os.uname().machine]
        user = _leave()
        if keeper := os.fork():
            _close(1, 2, report)
            os.waitpid(keeper, 0)
            return 0
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        _build(plan, user)
        _become(user)
        if program := os.fork():
            _close(1, 2)
            _tell(report, _keep(program, plan["seconds"]))
            os._exit(0)
        os.dup2(null, 0)
        _limit(plan, root=user is not None)
        kernel.install_filter(arch)
        _tell(report, {"started": True})
    except Exception as error:
        _tell(report, {"fault": str(error) if isinstance(error, Fault) else f"{type(error).__name__}: {error}"})
        os._exit(SETUP_FAILED)
    _close(null, report)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run(plan["code"])


def _leave() -> int | None:
    """New namespaces. As root: the user to become later; otherwise None, for the process is nobody from here on."""
    private = kernel.NEW_NS | kernel.NEW_PID | kernel.NEW_NET | kernel.NEW_IPC | kernel.NEW_UTS
    me, group = os.geteuid(), os.getegid()
    if me == 0:
        user = next((each for each in (FIRST_FREE_USER + os.getpid(), NOBODY) if _exists(each)), None)
        if user is None:
            raise Fault("there is no unprivileged user to become: /proc/self/uid_map holds none")
        kernel.unshare("new namespaces as root", private)
        return user
    kernel.unshare("new namespaces with a user namespace", kernel.NEW_USER | private)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{NOBODY} {me} 1"), ("gid_map", f"{NOBODY} {group} 1")):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)
    return None


def _exists(user: int) -> bool:
    """Whether this user namespace and this group namespace both know the number."""

    def holds(name: str) -> bool:
        with open(f"/proc/self/{name}") as file:  # noqa: PTH123
            ranges = [[int(word) for word in line.split()] for line in file]
        return any(first <= user < first + count for first, _, count in ranges)

    return holds("uid_map") and holds("gid_map")


def _build(plan: dict[str, Any], user: int | None) -> None:
    """A root directory with nothing in it but Python's library, read-only, and an empty scratch directory in memory."""
    kernel.mount("none", "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("sandbox", BLANK, "tmpfs", 0, "size=256k,mode=755")  # over /proc: no path that is needed lies there
    for path in plan["library"]:
        inside = BLANK + path
        if os.path.isdir(path):  # noqa: PTH112
            os.makedirs(inside, exist_ok=True)  # noqa: PTH103
        else:
            os.makedirs(os.path.dirname(inside), exist_ok=True)  # noqa: PTH103, PTH120
            os.close(os.open(inside, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(path, inside, None, kernel.MS_BIND | kernel.MS_REC)
        kernel.seal(inside, kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES)
    for path in plan["covered"]:
        kernel.mount("covered", BLANK + path, "tmpfs", 0, "size=4k,mode=755")
        kernel.seal(BLANK + path, kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC)
    scratch = BLANK + SCRATCH
    os.makedirs(scratch, exist_ok=True)  # noqa: PTH103
    kernel.mount("scratch", scratch, "tmpfs", 0, f"size={plan['disk_bytes']},nr_inodes={plan['files'] + 1},mode=700")
    kernel.seal(scratch, kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC)
    if user is not None:
        os.chown(scratch, user, user)
    kernel.pivot_into(BLANK)
    sealed = kernel.READ_ONLY | kernel.NO_SETUID | kernel.NO_DEVICES | kernel.NO_EXEC
    kernel.seal("/", sealed, recursive=False)
    kernel.name_host("sandbox")
    os.chdir(SCRATCH)


def _become(user: int | None) -> None:
    """No privilege is left after this, and none can come back."""
    kernel.bar_capabilities()
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    kernel.drop_capabilities()
    if 0 in (*os.getresuid(), *os.getresgid()):
        raise Fault("the process is still root")


def _limit(plan: dict[str, Any], *, root: bool) -> None:
    """Hard limits of the program's own; the keeper, and where it is not root the launcher, count among its user's tasks."""
    tasks = plan["threads"] + (1 if root else 2)
    memory, seconds = plan["memory_bytes"], plan["cpu_seconds"]
    for kind, soft, hard in (
        (resource.RLIMIT_AS, memory, memory),
        (resource.RLIMIT_CPU, seconds, seconds + 1),  # SIGXCPU first, SIGKILL a second later
        (resource.RLIMIT_FSIZE, plan["disk_bytes"], plan["disk_bytes"]),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_NPROC, tasks, tasks),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
    ):
        resource.setrlimit(kind, (soft, hard))


def _keep(program: int, seconds: float) -> dict[str, Any]:
    """Wait for the program, to the time limit at most, and as long as somebody waits for the answer."""
    poll = select.poll()
    ended = os.pidfd_open(program)
    poll.register(ended, select.POLLIN)
    poll.register(PLAN, select.POLLIN)  # readable once its other end is closed
    events = poll.poll(seconds * 1000)
    if not any(descriptor == ended for descriptor, _ in events):
        return {"exit": None, "timed_out": not events, "cpu_s": 0.0}
    _, status, usage = os.wait4(program, 0)
    return {
        "exit": os.waitstatus_to_exitcode(status),
        "timed_out": False,
        "cpu_s": usage.ru_utime + usage.ru_stime,
    }


def _line(descriptor: int) -> bytes:
    """Bytes up to the first newline; the descriptor stays open."""
    read = b""
    while not read.endswith(b"\n"):
        piece = os.read(descriptor, 65536)
        if not piece:
            raise Fault("no program was given")
        read += piece
    return read


def _tell(report: int, message: dict[str, Any]) -> None:
    os.write(report, json.dumps(message).encode() + b"\n")


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def start() -> int:
    """The entry: the report's descriptor and the asking process come on the command line."""
    report, parent = int(sys.argv[1]), int(sys.argv[2])
    sys.argv = [""]
    return main(report, parent)
