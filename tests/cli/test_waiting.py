"""What is shown while there is nothing to show yet: on a terminal only, and nothing of it stays."""

import io
import os
import pty
import subprocess
import sys

import pytest

from ragen.cli.waiting import doing


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "term", "quiet", "said"),
    [
        (Terminal(), "xterm", False, ["work …", "work …\r\x1b[2K"]),
        (Terminal(), "xterm", True, ["", ""]),
        (Terminal(), "dumb", False, ["", ""]),
        (io.StringIO(), "xterm", False, ["", ""]),
    ],
)
def test_the_line_is_there_while_it_is_done(
    stream: io.StringIO, term: str, quiet: bool, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", term)
    with doing("work", quiet=quiet):
        during = stream.getvalue()
    assert [during, stream.getvalue()] == said


def test_the_line_goes_after_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(KeyError), doing("work"):
        raise KeyError
    assert sys.stderr.getvalue().endswith("\x1b[2K")


def test_doctor_says_what_it_is_doing_on_a_terminal_and_its_output_is_the_same() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ragen.cli.main", "doctor", "--run.threads", "1"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=environment)
    os.close(theirs)
    out, _ = process.communicate(timeout=300)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    for part in ("loading torch …", "looking at the machine …", "trying the sandbox …"):
        assert part in shown
    assert shown.endswith("\r\x1b[2K")
    assert "…" not in out.partition("python tool")[0]
    assert out.startswith("ok   python:")
