"""Run a Python program that nobody vetted: walls of the Linux kernel around a process that has nothing to lose."""

import json
import os
import platform
import selectors
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ragen.errors import SandboxError
from ragen.tools.sandbox.inside.syscalls import ARCHES

GRACE = 10.0  # seconds after the time limit in which the sandbox itself must have ended
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/etc/ld.so.cache", "/usr/share/zoneinfo")
SCRATCH = "/tmp"  # noqa: S108 - the sandbox's own
OTHERS = ("site-packages", "dist-packages")  # installed packages lie there
BOOT = (
    "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, sys.argv.pop(1)); "
    "from inside.launcher import start; del sys.path[0]; sys.exit(start())"
)
ADVICE = (
    "It needs Linux 5.14 or newer on x86-64 or arm64, seccomp, and either user namespaces or root with CAP_SYS_ADMIN. In "
    "Docker start the container with --cap-add SYS_ADMIN --security-opt seccomp=unconfined --security-opt "
    "apparmor=unconfined; on Ubuntu 24.04 or newer run: sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0. "
    "There is no weaker mode (docs/sandbox.md)"
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one program may use at most. It is one process; memory is its address space, and files lie in memory as well.

    So a program takes ``memory_mb + disk_mb`` of the machine's memory at most, beside about 20 MB for its keeper.
    """

    seconds: float = 5.0
    cpu_seconds: int = 5
    memory_mb: int = 512
    threads: int = 8
    output_bytes: int = 65536
    disk_mb: int = 16
    files: int = 256

    def __post_init__(self) -> None:
        for name, lowest in (("seconds", 0.1), ("cpu_seconds", 1), ("memory_mb", 128), ("threads", 1), ("output_bytes", 1)):
            if getattr(self, name) < lowest:
                raise SandboxError(f"Limits.{name} is {getattr(self, name)}: it must be {lowest} or more")
        if self.disk_mb < 1 or self.files < 1:
            raise SandboxError("Limits.disk_mb and Limits.files must be 1 or more")


@dataclass(frozen=True, slots=True)
class Result:
    """How a program ended.

    ``exit`` is its exit code, −n where signal n killed it, None where the sandbox ended it; ``truncated``: it wrote more
    than was kept, and was ended for it. ``error`` says which limit it hit, None where it hit none.
    """

    stdout: str
    stderr: str
    exit: int | None
    timed_out: bool
    truncated: bool
    error: str | None


def run_python(code: str, *, limits: Limits | None = None) -> Result:
    """Run ``code`` as a script, walled in. Whatever the code does is in the Result.

    SandboxError where a wall cannot be built on this machine: then nothing was run.
    """
    check()
    return _run(code, limits or Limits())


@cache
def check() -> None:
    """Prove once a process that the walls hold here; SandboxError with what is open or missing, and what to do."""
    if not sys.platform.startswith("linux") or platform.machine() not in ARCHES:
        raise SandboxError(f"no sandbox on {sys.platform} {platform.machine()}. {ADVICE}")
    probe = (Path(__file__).parent / "probe.py").read_text()
    facts = {"hidden": _hidden(), "asker": os.getpid(), "memory": 256 * 2**20}
    result = _run(f"FACTS = {facts!r}\n{probe}", Limits(seconds=20, memory_mb=256, threads=4))
    if result.exit != 0 or result.stdout != "closed\n":
        told = " ".join((result.stdout + result.stderr).split()) or result.error or f"exit {result.exit}"
        raise SandboxError(f"the sandbox does not hold on this machine: {told}. {ADVICE}")


def _hidden() -> list[str]:
    """Files of the host that no program may see: the home directory's, this package's, the system's."""
    try:
        own = [str(path) for path in sorted(Path.home().iterdir())]
    except (OSError, RuntimeError):  # there is none, or it is another user's
        own = []
    inside = (*_library(), SCRATCH)  # there by right, also where the home directory is the root
    private = [path for path in own if not any(Path(each).is_relative_to(path) for each in inside)]
    return [*private, __file__, "/proc/1", "/etc/passwd", "/dev", "/sys"]


def _run(code: str, limits: Limits) -> Result:
    reading, writing = os.pipe()
    interpreter = getattr(sys, "_base_executable", None) or sys.executable
    here = Path(__file__).parent
    command = [interpreter, "-I", "-S", "-B", "-c", BOOT, str(here), str(writing), str(os.getpid())]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"LANG": "C.UTF-8", "HOME": SCRATCH, "MALLOC_ARENA_MAX": "1"},
            cwd="/",
            pass_fds=(writing,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(reading)
        raise SandboxError(f"the sandbox cannot be started: {error}") from error
    finally:
        os.close(writing)
    with process:
        try:
            heard = _exchange(process, reading, _plan(code, limits), limits)
            process.wait()  # it waits for the keeper, and the keeper's end for everybody's
        except BaseException:
            process.kill()
            raise
        finally:
            os.close(reading)
    return _outcome(heard, limits)


@dataclass(slots=True)
class _Heard:
    """What has come through the three pipes so far."""

    stdout: bytes = b""
    stderr: bytes = b""
    report: bytes = b""
    overflow: bool = False

    def take(self, name: str, piece: bytes, limit: int) -> None:
        """Keep a piece of a pipe, and no more of the program's output than ``limit`` bytes over both streams."""
        if name != "report":
            left = limit - len(self.stdout) - len(self.stderr)
            self.overflow, piece = self.overflow or len(piece) > left, piece[:left]
        setattr(self, name, getattr(self, name) + piece)


def _exchange(process: "subprocess.Popen[bytes]", reading: int, plan: bytes, limits: Limits) -> _Heard:
    """Hand over the plan and listen until every pipe is closed, which is when no process of the sandbox is left."""
    heard, deadline = _Heard(), time.monotonic() + limits.seconds + GRACE
    asking = process.stdin
    if asking is None or process.stdout is None or process.stderr is None:  # never: they are pipes
        raise SandboxError("the sandbox's process has no pipes")
    try:
        asking.write(plan)
        asking.flush()
    except BrokenPipeError:  # it has ended: its report says why
        pass
    with selectors.DefaultSelector() as selector:
        for pipe, name in ((process.stdout, "stdout"), (process.stderr, "stderr"), (reading, "report")):
            selector.register(pipe, selectors.EVENT_READ, name)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise SandboxError(f"the sandbox did not end within {GRACE:g} s of its time limit: run fewer at a time")
            for key, _ in ready:
                if piece := os.read(key.fd, 65536):
                    heard.take(key.data, piece, limits.output_bytes)
                else:
                    selector.unregister(key.fileobj)
            if heard.overflow and not asking.closed:
                asking.close()  # the keeper sees it and ends everything
    return heard


def _outcome(heard: _Heard, limits: Limits) -> Result:
    report: dict[str, Any] = {}
    for line in heard.report.splitlines():
        report |= json.loads(line)
    if "fault" in report or not report:
        told = report.get("fault") or heard.stderr.decode("utf-8", "replace").strip() or "it ended without a word"
        raise SandboxError(f"the sandbox cannot be built here: {told}. {ADVICE}")
    code: int | None = report.get("exit")
    by_cpu = code == -signal.SIGXCPU or (code == -signal.SIGKILL and report["cpu_s"] >= limits.cpu_seconds)
    by_clock = report.get("timed_out", False)
    error = None if "exit" in report else "it was ended from outside"  # the machine had no memory left, for example
    if heard.overflow:
        error = f"it wrote more than {limits.output_bytes} bytes and was ended"
    elif by_clock:
        error = f"it was ended after {limits.seconds:g} s"
    elif by_cpu:
        error = f"it was ended after {limits.cpu_seconds} s of computing"
    elif code is not None and code < 0:
        error = f"it was ended by signal {-code}"
    stdout, stderr = (each.decode("utf-8", "replace") for each in (heard.stdout, heard.stderr))
    return Result(stdout, stderr, code, timed_out=by_clock or by_cpu, truncated=heard.overflow, error=error)


def _plan(code: str, limits: Limits) -> bytes:
    """The launcher's orders: one line of JSON."""
    library = _library()
    plan = {
        "code": code,
        "library": library,
        "covered": [path for path in _installed(library) if Path(path).is_dir()],
        "seconds": limits.seconds,
        "cpu_seconds": limits.cpu_seconds,
        "memory_bytes": limits.memory_mb * 2**20,
        "threads": limits.threads,
        "disk_bytes": limits.disk_mb * 2**20,
        "files": limits.files,
    }
    return json.dumps(plan).encode() + b"\n"


def _library() -> list[str]:
    """What a Python without packages reads: its own library and the system's shared ones; a path within another left out."""
    own = {str(Path(sysconfig.get_path(kind)).parent) for kind in ("stdlib", "platstdlib")}
    paths = sorted({path for path in (*SYSTEM, *own) if Path(path).exists()})
    return [path for path in paths if not any(Path(path).is_relative_to(other) for other in paths if other != path)]


def _installed(library: list[str]) -> list[str]:
    """Where packages may be installed beneath the library's paths."""
    return [str(folder / name) for path in library for folder in sorted(Path(path).glob("python3*")) for name in OTHERS]


def python(code: str) -> str:
    """Run a Python program and return what it printed.

    The program has the standard library, no network, an empty folder /tmp that is thrown away, and 5 seconds. An
    exception's traceback and a limit that was hit stand at the end of the answer.

    Args:
        code: the program's text
    """
    result = run_python(code)
    ended = result.error or (f"exit code {result.exit}" if result.exit else "")
    return "\n".join(part for part in (result.stdout.rstrip("\n"), result.stderr.rstrip("\n"), ended) if part)
