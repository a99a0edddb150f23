"""`ragen shop` from the command line: what is served, and what is said where nothing can be."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from tests.kept_evaluation import kept

from ragen.cli.main import main
from ragen.config import load_config
from ragen.runs.directory import RunDirectory


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "70000"], "65535"),
        (["--port", "-1"], "65535"),
        (["--instance", "-1"], "use 0 or more"),
        (["--step", "3"], "name the RUN (`ragen shop RUN --step …`)"),
        (["--worst"], "name the RUN (`ragen shop RUN --worst …`)"),
        (["nosuch"], "is not a run directory"),
        (["shop", "--instance", "3"], "--instance means nothing beside a run"),
        (["shop", "--env.goals", "human"], "--env.goals means nothing beside a run"),
        (["shop", "--member", "7"], "no such trajectory"),
        (["shop", "--step", "7"], "no trajectories of step 7"),
        (["bandit"], "the environment is 'bandit', which is no shop"),
        (["--env", "sokoban"], "the environment is 'sokoban', which is no shop"),
        (["--env", "webshp"], "error: there is no environment 'webshp': did you mean 'webshop'?\n"),
        (["--env", "zzz"], "error: there is no environment 'zzz': known: webshop, webshop-15\n"),
        (["--env", "lock.py:Lock"], "the environment is 'lock.py:Lock', which is no shop"),
        (["--steps", "3"], "setting 'steps' means nothing to ragen shop"),
        (["--env.nosuch", "3"], "env.nosuch"),
        (["--env.products", "/nosuch/items.json"], "/nosuch/items.json"),
    ],
)
def test_what_cannot_be_done_says_why(make_run, tmp_path, monkeypatch, capsys, words, said):
    make_run()
    bandit = load_config("bandit-starpo-s-grpo-tiny", ["--run.root", str(tmp_path / "runs"), "--run.name", "bandit"])
    RunDirectory.create(bandit)
    monkeypatch.chdir(tmp_path)
    assert main(["shop", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_port_in_use_names_the_way_out(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["shop", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another one, or 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--instance", "3"], "WebShop, goal 3"),
        (["--env", "webshop-15", "--env.catalogue_size", "50"], "WebShop, goal 0"),
        (["shop"], "<th scope=\"col\">turns</th>"),
        (["shop", "--best", "--step", "1"], "<th scope=\"col\">group</th>"),
        (["shop", "--group", "1"], "page 1 of"),
        (["agent", "--group", "1"], "page 1 of"),
        (["evals/agent", "--best"], "evaluation of mine"),
    ],
)  # fmt: skip
def test_pages_are_served_until_ctrl_c(make_run, tmp_path, words, shown):
    played = [item.trajectory for item in make_run().trajectories()]
    player = {"model": {"name": "mine", "weights": "/a", "changed": 1.0, "dtype": "float32"}}
    kept(tmp_path / "evals", played, name="agent", env="webshop", player=player)
    command = [sys.executable, "-m", "ragen.cli.main", "shop", *words, "--port", "0"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, cwd=tmp_path, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        try:
            line = process.stdout.readline()
            assert "(Ctrl-C ends this)" in line
            with urllib.request.urlopen(line.split()[0], timeout=30) as answer:
                assert shown in answer.read().decode()
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()
