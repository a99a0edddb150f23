"""`ragen report` and `ragen watch` from the command line: where the page goes, and what is said where none can."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import nullcontext

import pytest

from ragen.cli.main import main
from ragen.config import load_config
from ragen.runs.directory import RunDirectory


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        words = ["--run.root", str(tmp_path / "runs"), "--run.name", name, "--model.name", str(tmp_path)]
        RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", words)).append_metrics(1, {"rollout/success": 0.5})
    return tmp_path


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["one"], "runs/one/report.html"),
        (["runs/one"], "runs/one/report.html"),
        (["one", "two"], "report.html"),
        (["one", "-o", "new/page.html"], "new/page.html"),
    ],
)
def test_the_page_goes_into_the_run_or_where_it_is_asked_for(root, words, file, capsys):
    assert main(["report", *words]) == 0
    assert f"{file} (" in capsys.readouterr().out
    assert (root / file).read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report"], "RUN"),
        (["report", "onne"], "did you mean 'one'"),
        (["report", "one", "two", "three"], "is not a run directory"),
        (["report", "one", "-o", "x.pdf"], "end it with .html"),
        (["report", "one", "-o", "/proc/x/y.html"], "cannot be written"),
        (["report", "one", "-o", "runs"], "is a directory"),
        (["watch"], "RUN"),
        (["watch", "onne"], "did you mean 'one'"),
        (["watch", "one", "--port", "70000"], "65535"),
        (["watch", "one", "--port", "-1"], "65535"),
    ],
)
def test_what_cannot_be_done_says_why(root, words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert not list(root.rglob("*.html"))


@pytest.mark.parametrize("damage", ["metrics.jsonl", "config.yaml"])
def test_a_damaged_run_leaves_the_page_that_was_there(root, damage, capsys):
    assert main(["report", "one"]) == 0
    page = (root / "runs/one/report.html").read_bytes()
    (root / "runs/one" / damage).write_text("{nonsense\n\n{}\n")
    assert main(["report", "one"]) == 2
    assert damage in capsys.readouterr().err
    assert (root / "runs/one/report.html").read_bytes() == page


def test_a_port_in_use_names_the_way_out(root, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["watch", "one", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another one, or 0" in capsys.readouterr().err


ENDED = "the run does not go on ("
FIXED = "), so this page will not change; `ragen report runs/one` writes it to a file)"


@pytest.mark.parametrize(
    ("steps", "running", "said"),
    [
        (1, False, f"{ENDED}all steps done{FIXED}"),
        (5, False, f"{ENDED}killed after step 1 of 5, before its first checkpoint: start it again{FIXED}"),
        (5, True, "Ctrl-C ends this; the run goes on)"),
    ],
)
def test_watching_says_whether_the_page_will_change(root, steps, running, said, monkeypatch, capsys):
    from ragen.localserver import LocalServer
    from ragen.runs.lock import locked

    config = root / "runs/one/config.yaml"
    config.write_text(config.read_text().replace("\nsteps: 50\n", f"\nsteps: {steps}\n"))
    if steps == 1:
        RunDirectory.open("one").write_end("all steps done")
    monkeypatch.setattr(LocalServer, "serve_forever", lambda server: None)
    with locked(root / "runs/one") if running else nullcontext():
        assert main(["watch", "one", "--port", "0"]) == 0
    assert capsys.readouterr().out.endswith(f"{said}\n")


def test_watching_is_served_until_ctrl_c(root):
    command = [sys.executable, "-m", "ragen.cli.main", "watch", "one", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    try:
        address = process.stdout.readline().split()[0]
        assert address.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(address) as answer:
            assert b"RAGEN report" in answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
