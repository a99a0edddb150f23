"""What `ragen study run` shows, in a terminal and elsewhere."""

import io

import pytest
from rich.console import Console

from ragen.cli import study_console
from ragen.cli.study_console import StudyConsole, duration
from ragen.config import load_config
from ragen.studies.grid import StudyRun
from ragen.studies.runner import Progress

RUN = StudyRun("bandit-grpo-seed0-0123456789", load_config("bandit-starpo-grpo-tiny"))


def shown(monkeypatch, *, terminal):
    monkeypatch.setattr(study_console, "PLAIN_EVERY_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    with StudyConsole(Console(file=out, force_terminal=terminal, width=100)) as console:
        console.on_begin({"a": "done", "b": "new", "c": "begun", "d": "busy"}, workers=2, threads=1)
        console.on_progress(Progress(5, 20, ((RUN, 5),), 600.0))
        console.on_end(RUN, "done\a")
        console.on_progress(Progress(20, 20, (), None))
        if console._bar is not None:
            console._bar.refresh()
    return out.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_states_steps_time_left_and_ends_are_told(monkeypatch, terminal):
    text = shown(monkeypatch, terminal=terminal)
    assert "1 done before, 1 to run, 1 to go on with, 1 in another process; 2 side by side, 1 thread each unless set" in text
    assert "[1/2] bandit-grpo-seed0-0123456789: done\\x07" in text
    assert "1/2 runs" in text
    assert "20/20 steps" in text
    assert ("5/20 steps, about 10 min left" in text) or terminal  # a bar is drawn when its time comes


@pytest.mark.parametrize(("seconds", "said"), [(2, "1 min"), (600, "10 min"), (3599, "1 h 0 min"), (9000, "2 h 30 min")])
def test_times_are_told_in_minutes(seconds, said):
    assert duration(seconds) == said
