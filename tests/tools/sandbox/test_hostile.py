"""Every wall against a program that tries it; the same program succeeds where there is none."""

import os
import platform
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.tools.sandbox.hostile import AS_ROOT, INSIDE, PRELUDE, PROGRAMS

from ragen.errors import SandboxError
from ragen.tools.sandbox import Limits, check, run_python

SHORT = Limits(seconds=20)
PACKAGES = sysconfig.get_path("purelib", vars={"base": sys.base_prefix})


def refusal() -> str:
    try:
        check()
    except SandboxError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(refusal()), reason=refusal())


@pytest.fixture(scope="module")
def host() -> Iterator[dict[str, Any]]:
    """A host with something to lose: servers, a secret, a log, and a process."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        secret, log, place = folder / "secret", folder / "log", folder / "socket"
        secret.write_text("CANARY")
        secret.chmod(0o644)
        log.write_text("")
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        local, abstract = (stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2))
        local.bind(str(place))
        abstract.bind(f"\0ragen-{os.getpid()}")
        local.listen()
        abstract.listen()
        victim = subprocess.Popen(["sleep", "600"], env={"PATH": os.environ["PATH"]})
        stack.callback(victim.wait)
        stack.callback(victim.kill)
        yield {
            "folder": str(folder),
            "secret": str(secret),
            "log": str(log),
            "socket": str(place),
            "abstract": f"\0ragen-{os.getpid()}",
            "port": server.getsockname()[1],
            "victim": victim.pid,
            "packages": PACKAGES,
            "name": os.uname().nodename,
        }


@pytest.fixture
def open_secret(host: dict[str, Any]) -> Iterator[None]:
    """A file that a careless start of a process would hand on."""
    descriptor = os.open(host["secret"], os.O_RDONLY)
    os.set_inheritable(descriptor, True)
    yield
    os.close(descriptor)


def whole(name: str, host: dict[str, Any]) -> str:
    code = PROGRAMS[name].code
    if platform.machine() != "x86_64" and re.search(r"reached\(|call\(\d|fromhex", code):
        pytest.skip("the numbers of the system calls are those of x86-64")
    return f"HOST = {host!r}\n{PRELUDE}\n{code}\n"


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.usefixtures("open_secret")
def test_nothing_gets_out(name: str, host: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "CANARY")
    monkeypatch.setenv("RAGEN_API_KEY", "CANARY")
    result = run_python(whole(name, host), limits=SHORT)
    assert "DONE" not in result.stdout
    assert not result.timed_out, "the act was refused at once"
    assert Path(host["log"]).read_text() in ("", "x")
    assert Path(host["folder"], "secret").stat().st_nlink <= 2


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if program.where != INSIDE])
@pytest.mark.usefixtures("open_secret")
def test_each_act_works_without_walls(name: str, host: dict[str, Any], tmp_path: Path) -> None:
    if PROGRAMS[name].where == AS_ROOT and os.geteuid() != 0:
        pytest.skip("needs root")
    done = subprocess.run(
        [sys.executable, "-c", whole(name, host)],
        cwd=tmp_path,
        env={**os.environ, "HF_TOKEN": "CANARY"},
        close_fds=False,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "DONE" in done.stdout, done.stderr


def test_there_are_enough_of_them() -> None:
    assert len(PROGRAMS) >= 30


def family(of: int) -> set[int]:
    """The processes that this one started, and those that they started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit():
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    found = {of}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {of}


ENDLESS = {
    "a loop": "while True: pass",
    "a loop that ignores signals": "import signal\nfor n in range(1, 65):\n"
    "    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True: pass",
    "sleep": "import time; time.sleep(1000)",
    "a stopped process": "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    "an exit that never ends": "import atexit\n@atexit.register\ndef f():\n    while True: pass",
    "a thread that stays": "import threading, time; threading.Thread(target=time.sleep, args=(1000,)).start()",
    "one call": "9**9**9",
    "a closed output": "import os, time; os.close(1); os.close(2); time.sleep(1000)",
}


@pytest.mark.parametrize("code", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_ended(code: str) -> None:
    before = family(os.getpid())
    result = run_python(code, limits=Limits(seconds=0.7))
    assert result.timed_out
    assert result.exit is None
    assert result.error == "it was ended after 0.7 s"
    assert family(os.getpid()) <= before


def test_computing_time_is_bounded_whatever_the_program_ignores() -> None:
    limits = Limits(seconds=60, cpu_seconds=1)
    for code, code_after in (
        ("while True: pass", -signal.SIGXCPU),
        (ENDLESS["a loop that ignores signals"], -signal.SIGKILL),
    ):
        result = run_python(code, limits=limits)
        assert (result.timed_out, result.exit) == (True, code_after)
        assert result.error == "it was ended after 1 s of computing"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_flood_is_cut_and_the_program_ended(stream: str) -> None:
    result = run_python(
        f"import sys\nwhile True: sys.{stream}.write('x' * 4096)", limits=Limits(seconds=60, output_bytes=10_000)
    )
    assert result.truncated
    assert not result.timed_out
    assert len(result.stdout) + len(result.stderr) == 10_000
    assert result.error == "it wrote more than 10000 bytes and was ended"


def test_just_enough_output_is_no_flood() -> None:
    result = run_python("print('x' * 99)", limits=Limits(output_bytes=100))
    assert (len(result.stdout), result.truncated, result.exit) == (100, False, 0)


def test_killing_all_kills_nobody_outside(host: dict[str, Any]) -> None:
    result = run_python("import os\nfor n in (1, 0, -1):\n    os.kill(n, 15)\nos.kill(-1, 9)\nos.kill(0, 9)", limits=SHORT)
    assert result.exit in (-signal.SIGTERM, -signal.SIGKILL)
    os.kill(host["victim"], 0)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD])
def test_the_keeper_cannot_be_hit(number: int) -> None:
    result = run_python(f"import os, time\nos.kill(1, {int(number)})\ntime.sleep(0.1)\nprint('still here')", limits=SHORT)
    assert (result.stdout, result.exit) == ("still here\n", 0)


def test_a_keeper_that_is_killed_from_outside_is_no_fault_of_the_walls(host: dict[str, Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            run_python, "import time; print('on', flush=True); time.sleep(600)", limits=Limits(seconds=600)
        )
        while len(born := sorted(family(os.getpid()))) < 4:  # the victim too
            time.sleep(0.02)
        launchers = [pid for pid in born if "inside.launcher" in Path(f"/proc/{pid}/cmdline").read_text()]
        parents = {pid: family(pid) for pid in launchers}
        keeper = next(pid for pid in launchers if len(parents[pid]) == 1)
        os.kill(keeper, signal.SIGKILL)
        result = running.result(60)
    assert (result.stdout, result.exit, result.timed_out) == ("on\n", None, False)
    assert result.error == "it was ended from outside"


def test_files_are_gone_afterwards_and_programs_do_not_meet() -> None:
    write = run_python("open('note', 'w').write('x'); import os; print(os.getcwd(), os.listdir())")
    assert write.stdout == "/tmp ['note']\n"
    assert not Path("/tmp/note").exists()
    assert run_python("import os; print(os.listdir('/tmp'))").stdout == "[]\n"


def test_the_scratch_holds_what_is_promised() -> None:
    code = "for i in range({}):\n    open(f'f{{i}}', 'wb').write(bytes({}))\nprint('DONE')"
    limits = Limits(disk_mb=2, files=10)
    assert run_python(code.format(10, 1000), limits=limits).stdout == "DONE\n"
    assert "No space left" in run_python(code.format(11, 1000), limits=limits).stderr
    assert run_python(code.format(1, 2 * 2**20), limits=limits).stdout == "DONE\n"
    assert "No space left" in run_python(code.format(3, 2**20), limits=limits).stderr


def test_threads_up_to_the_limit() -> None:
    code = (
        "import threading\ngo = threading.Event()\nall = [threading.Thread(target=go.wait) for _ in range({})]\n"
        "try:\n    for t in all: t.start()\n    print('DONE')\nfinally: go.set()"
    )
    assert run_python(code.format(3), limits=Limits(threads=4)).stdout == "DONE\n"
    assert "can't start new thread" in run_python(code.format(4), limits=Limits(threads=4)).stderr


def test_everything_dies_with_whoever_asked() -> None:
    code = (
        "from ragen.tools.sandbox import Limits, run_python\n"
        "run_python('import time; time.sleep(600)', limits=Limits(seconds=600))"
    )
    process = subprocess.Popen([sys.executable, "-c", code])

    while len(born := family(process.pid)) < 3:  # launcher, keeper, program
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    for _ in range(500):
        if not any(Path(f"/proc/{pid}").exists() for pid in born):
            break
        time.sleep(0.02)
    assert [pid for pid in born if Path(f"/proc/{pid}").exists()] == []
