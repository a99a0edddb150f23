"""What a program may do, how its end is told, and when the sandbox refuses to start."""

import ctypes
import os
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest
from tests.tools.sandbox.test_hostile import refusal

from ragen.errors import SandboxError
from ragen.tools import tool
from ragen.tools.sandbox import Limits, python, run, run_python
from ragen.tools.sandbox.inside import kernel
from ragen.tools.sandbox.inside.syscalls import ARCHES

needs_walls = pytest.mark.skipif(bool(refusal()), reason=refusal())


@needs_walls
def test_a_program_runs_as_a_script() -> None:
    code = "import sys\nif __name__ == '__main__':\n    print(6 * 7, sys.argv)\n    print('oh', file=sys.stderr)\nexit(3)"
    result = run_python(code)
    assert (result.stdout, result.stderr, result.exit) == ("42 ['']\n", "oh\n", 3)
    assert (result.timed_out, result.truncated, result.error) == (False, False, None)


@needs_walls
def test_a_traceback_shows_the_program_only() -> None:
    result = run_python("def f(x):\n    return 1 / x\n\nf(0)")
    assert result.exit == 1
    assert 'File "<python>", line 4, in <module>\n    f(0)' in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "launcher" not in result.stderr
    assert "program.py" not in result.stderr
    assert "SyntaxError" in run_python("1 +").stderr


@needs_walls
@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (
            "import math, json, re, random, itertools, decimal, fractions, datetime, collections\nprint(math.pi)",
            "3.141592653589793",
        ),
        ("import sqlite3; print(sqlite3.connect(':memory:').execute('select 1+1').fetchone()[0])", "2"),
        ("import hashlib, zlib, ssl; print(hashlib.sha256(b'').hexdigest()[:4])", "e3b0"),
        ("import threading\nt = threading.Thread(target=print, args=('hi',))\nt.start(); t.join()", "hi"),
        ("import tempfile\nwith tempfile.TemporaryFile() as f: print(f.write(b'abc'))", "3"),
        ("from concurrent.futures import ThreadPoolExecutor as T\nwith T(2) as t: print(sum(t.map(abs, [-1, -2])))", "3"),
        ("import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int\nprint(A(1))", "A(x=1)"),
        ("print('é', input.__name__)", "é input"),
        ("import shutil; open('a', 'w').write('x'); shutil.copy('a', 'b'); print(open('b').read())", "x"),
        ("import zoneinfo, time; time.sleep(0.01); print(time.tzname[0])", "UTC"),
    ],
)
def test_ordinary_programs_work(code: str, printed: str) -> None:
    result = run_python(code)
    assert (result.stdout, result.stderr) == (f"{printed}\n", "")


@needs_walls
def test_no_input_waits() -> None:
    assert "EOFError" in run_python("input()").stderr


@needs_walls
def test_death_by_a_signal_is_told() -> None:
    result = run_python("import ctypes; ctypes.string_at(0)")
    assert (result.exit, result.error) == (-11, "it was ended by signal 11")


@needs_walls
def test_long_programs_and_odd_text_arrive() -> None:
    text = "\x00é\ud7ff\U0001f600\n" * 50_000
    assert run_python(f"print(len({text!r}))").stdout == f"{len(text)}\n"


@needs_walls
def test_programs_side_by_side() -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(
            pool.map(lambda n: run_python(f"import time; time.sleep(0.2); print({n})", limits=Limits(seconds=60)), range(16))
        )
    assert [result.stdout for result in results] == [f"{n}\n" for n in range(16)]


@needs_walls
def test_the_tool_tells_all_a_policy_can_use() -> None:
    assert python("print(2 ** 10)") == "1024"
    assert python("x = 1") == ""
    made = tool(python)
    assert made.summary == "python(code: string): Run a Python program and return what it printed. code: the program's text"
    assert made({"code": "print(1)"}) == "1"
    assert python("print('a')\n1 / 0").splitlines()[-1] == "exit code 1"


def test_no_descriptor_is_left() -> None:
    if refusal():
        pytest.skip(refusal())
    run_python("pass")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for code in ("pass", "1/0", "while True: print('x' * 1000)"):
        run_python(code)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    "limits", [{"seconds": 0}, {"memory_mb": 64}, {"threads": 0}, {"files": 0}, {"disk_mb": 0}, {"output_bytes": 0}]
)
def test_limits_that_nothing_could_run_under(limits: dict[str, int]) -> None:
    with pytest.raises(SandboxError, match=f"Limits.*{next(iter(limits))}"):
        Limits(**limits)  # type: ignore[arg-type]


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    run.check.cache_clear()
    with pytest.raises(SandboxError, match=r"no sandbox on darwin.*needs Linux"):
        run_python("print(1)")
    monkeypatch.undo()
    run.check.cache_clear()


@needs_walls
def test_a_wall_that_is_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof sees the host's files: here one that every program sees is said to be hidden."""
    monkeypatch.setattr(run, "_hidden", lambda: [os.__file__])
    run.check.cache_clear()
    with pytest.raises(SandboxError, match=re.escape(f"does not hold on this machine: open: {os.__file__}")):
        run_python("print(1)")
    monkeypatch.undo()
    run.check.cache_clear()


def test_a_home_that_is_the_root_or_cannot_be_read_is_no_open_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container: HOME is / for a user of no account, or still that of the user before."""
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setattr(run, "_library", lambda: ["/usr/lib"])
    assert {"/tmp", "/usr", "/var"} & set(run._hidden()) == {"/var"}

    def refuse(error: Exception) -> NoReturn:
        raise error

    monkeypatch.setattr(Path, "iterdir", lambda _: refuse(PermissionError(13, "Permission denied")))
    assert run._hidden()[0] == run.__file__
    monkeypatch.setattr(Path, "home", lambda: refuse(RuntimeError("Could not determine home directory.")))
    assert run._hidden()[0] == run.__file__


@pytest.mark.skipif(os.geteuid() != 0 or bool(refusal()), reason="gives up root's privileges")
@pytest.mark.parametrize("mode", ["no privilege to leave the namespaces", "no filter"])
def test_root_that_cannot_wall_in_is_refused(mode: str, tmp_path: Path) -> None:
    """In a process of its own that lacks what the sandbox needs."""
    lacking = {
        "no privilege to leave the namespaces": "for n in (21,): assert libc.prctl(24, n, 0, 0, 0) == 0\n",
        "no filter": "",
    }[mode]
    # CAP_SYS_ADMIN leaves the bounding set, so the launcher that is executed does not have it; or seccomp is refused
    code = (
        "import ctypes, struct\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        + lacking
        + ("" if lacking else NO_SECCOMP)
        + "from ragen.tools.sandbox import run_python\n"
        "from ragen.errors import SandboxError\n"
        "try: print('RAN', run_python('print(1)'))\n"
        "except SandboxError as error: print('REFUSED', error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("REFUSED the sandbox cannot be built here: "), done.stdout + done.stderr
    assert "docs/sandbox.md" in done.stdout


# a filter that answers prctl(PR_SET_SECCOMP) with EPERM
NO_SECCOMP = """
libc.prctl(38, 1, 0, 0, 0)
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, 157), (0x20, 0, 0, 16), (0x15, 0, 1, 22), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
program = ctypes.create_string_buffer(b''.join(struct.pack('=HBBI', *s) for s in steps))
assert libc.prctl(22, 2, ctypes.create_string_buffer(struct.pack('@HP', len(steps), ctypes.addressof(program)))) == 0
"""


@pytest.mark.parametrize("name", ARCHES)
def test_the_numbers_are_the_kernels(name: str) -> None:
    header = {"x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "/usr/include/asm-generic/unistd.h"}[
        name
    ]
    if not Path(header).exists():
        pytest.skip("the kernel's headers are not installed")
    said = {m[1]: int(m[2]) for m in re.finditer(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", Path(header).read_text())}
    said.setdefault("newfstatat", said.get("fstatat", -1))
    arch = ARCHES[name]
    assert {call: said[call] for call in (*arch.allowed, *arch.special)} == {**arch.allowed, **arch.special}


def answer(arch_name: str, number: int, *arguments: int, audit: int | None = None) -> int:
    """What the filter returns for a call: a second reading of the packet-filter language."""
    arch = ARCHES[arch_name]
    data = struct.pack("=iIQ6Q", number, arch.audit if audit is None else audit, 0, *(list(arguments) + [0] * 6)[:6])
    program, at, value = kernel.filter_program(arch), 0, 0
    while True:
        code, yes, no, operand = program[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, operand)
        elif code == 0x54:
            value &= operand
        elif code == 0x06:
            return operand
        else:
            at += yes if (value == operand if code == 0x15 else value >= operand) else no


@pytest.mark.parametrize("name", ARCHES)
def test_the_filter_call_by_call(name: str) -> None:
    arch, allow, refuse, unknown = ARCHES[name], 0x7FFF0000, 0x50001, 0x50026
    for number in range(600):
        if number not in arch.special.values():
            assert answer(name, number) == (allow if number in arch.allowed.values() else refuse), number
    assert answer(name, 0x40000000 + arch.allowed["read"]) == refuse
    assert answer(name, arch.allowed["read"], audit=0x40000003) == 0x80000000
    clone, thread = arch.special["clone"], 0x3D0F00
    assert answer(name, clone, thread) == allow
    for flags in (17, 0x4111, thread & ~0x10000, thread | 0x10000000, thread | 0x02000000, thread | 0x40000000):
        assert answer(name, clone, flags) == refuse, hex(flags)
    assert answer(name, arch.special["clone3"], thread) == unknown
    assert answer(name, arch.special["ioctl"], 1, 0x5401) == allow
    assert answer(name, arch.special["ioctl"], 1, 0x5412) == refuse  # TIOCSTI
    prlimit = arch.special["prlimit64"]
    assert answer(name, prlimit, 0, 7, 0, 1) == allow
    assert answer(name, prlimit, 0, 7, 1 << 40, 0) == refuse
    assert answer(name, prlimit, 0, 7, 1, 0) == refuse
    assert answer(name, prlimit, 1, 7, 0, 0) == refuse


def test_the_filter_fits_into_the_kernel() -> None:
    assert all(len(kernel.filter_program(arch)) <= 4096 for arch in ARCHES.values())
    assert ctypes.sizeof(ctypes.c_void_p) == 8
