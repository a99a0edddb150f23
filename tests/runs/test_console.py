"""What a person reads while a run goes on."""

import errno
import io
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console

from ragen.config import load_config
from ragen.metrics.definitions import METRICS
from ragen.metrics.echo_trap import NOTHING, Signals
from ragen.runs import console as module

METRIC_VALUES = {key: 0.5 for _, key, _ in module.COLUMNS} | {"update/grad_norm": float("nan"), "time/tokens_per_s": 1234.0}


@dataclass
class Player:
    success: float = 0.5
    interval: tuple[float, float] = (0.4, 0.6)


@dataclass
class Report:
    success: float = 0.75
    success_interval: tuple[float, float] = (0.5, 0.875)
    total_return: float = 1.5
    return_interval: tuple[float, float] = (1.0, 2.0)
    task_return: float = 1.625
    episodes: int = 128
    samples: int = 4
    temperature: float = 0.5
    valid_format: float = 0.9
    turns: float = 2.0
    tokens: float = 30.0
    errors: int = 1
    pass_at_k: float | None = 0.96
    ceiling: float | None = 0.99
    players: dict = field(default_factory=lambda: {"random": Player()})
    notes: tuple[str, ...] = ("the observation helps",)


@dataclass
class Result:
    run: Path = Path("runs/one")
    steps: int = 3
    planned: int = 3
    stopped: str = "all steps done"
    before: Report | None = field(default_factory=lambda: Report(success=0.25))
    after: Report | None = field(default_factory=Report)
    history: tuple = ()
    signals: Signals = NOTHING
    rollbacks: tuple = ()
    flat: int = 0


def play(listener):
    listener.on_start(load_config("bandit-starpo-s-grpo-tiny"), Path("runs/one"))
    listener.on_phase("train", 3)
    for step in (1, 2, 3):
        listener.on_step(step, METRIC_VALUES)
    listener.on_phase("evaluate", 128)
    listener.on_progress(128)
    listener.on_eval("after", Report())
    listener.on_message("[bold]kept as typed[/bold]")
    listener.on_end(Result())


def transcript(*, terminal=False, quiet=False):
    file = io.StringIO()
    screen = Console(file=file, force_terminal=terminal, width=120, color_system="standard" if terminal else None)
    if terminal:
        screen.is_dumb_terminal  # noqa: B018
    play(module.make_listener(quiet=quiet, console=screen))
    return file.getvalue()


def test_e12_without_a_terminal_the_output_is_plain_lines_without_escapes():
    text = transcript()
    assert "\x1b" not in text
    assert "\r" not in text
    lines = text.splitlines()
    heading = next(line for line in lines if "entropy" in line)
    rows = [line for line in lines if line.strip()[:1] in "123" and "0.500" in line]
    assert len(rows) == 3
    assert {len(row) for row in rows} == {len(heading)}
    assert rows[0].split() == ["1", "0.500", "0.500", "0.500", "0.500", "–", "0.500", "1234", "0.5"]


def test_the_table_tells_what_training_is_watched_by():
    titles = [title for title, _, _ in module.COLUMNS]
    assert titles[:5] == ["success", "return", "std", "entropy", "grad"]
    assert "tokens/s" in titles
    assert [key for _, key, _ in module.COLUMNS if key not in METRICS] == []


def test_evaluations_tell_intervals_sizes_players_ceiling_and_notes():
    text = transcript()
    for part in (
        "0.750 [0.500, 0.875]",
        "return 1.500 [1.000, 2.000]",
        "task return 1.625",
        "n = 128 × 4",
        "pass@4 0.960",
        "random 0.500 [0.400, 0.600]",
    ):
        assert part in text
    for part in ("best possible 0.990", "note: the observation helps", "T = 0.5", "1 episode lost"):
        assert part in text


def test_the_end_says_where_the_run_lies_and_how_to_go_on():
    for text in (transcript(), transcript(quiet=True)):
        assert "ragen show runs/one" in text
        assert "ragen train --resume runs/one" in text
        assert "before 0.250" in text


def test_quiet_says_only_the_end():
    text = transcript(quiet=True)
    assert len(text.splitlines()) == 5
    assert "entropy" not in text


def test_messages_are_never_read_as_markup():
    assert "[bold]kept as typed[/bold]" in transcript()


@pytest.mark.parametrize("quiet", [True, False])
def test_messages_and_notes_cannot_steer_the_terminal(quiet):
    file = io.StringIO()
    listener = module.make_listener(quiet=quiet, console=Console(file=file, width=120))
    listener.on_message("an environment said \x1b[2J\x9b31m")
    listener.on_phase("warm-up \x1b[2J", 3)
    listener.on_eval("x", Report(notes=("the first said: \x1b]0;title\x07",)))
    listener.on_end(Result(stopped="stopped \x1b[2J"))
    assert {c for c in file.getvalue() if not c.isprintable()} == {"\n"}
    assert r"stopped \x1b[2J" in file.getvalue()


def test_a_terminal_gets_a_bar_with_the_time_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = transcript(terminal=True)
    assert "\x1b" in text
    assert "left" in text
    assert "0/3" in text
    assert "0.750 [0.500, 0.875]" in text


def test_long_phases_speak_up_now_and_then_with_the_time_left(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    listener = module.make_listener(console=Console(file=file, width=120))
    listener.on_phase("warm-up", 100)
    for _ in range(50):
        now[0] += 1.0
        listener.on_progress(1)
    spoken = [line for line in file.getvalue().splitlines() if "left" in line]
    assert len(spoken) == 5
    assert spoken[0].strip() == "warm-up: 10/100, about 1 min 30 s left"


@pytest.mark.parametrize(
    ("done", "total", "said"), [(199, 200, "nearly done"), (99, 100, "nearly done"), (10, 11, "about 1 s left")]
)
def test_the_end_of_a_phase_is_not_zero_seconds_away(done, total, said, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    listener = module.make_listener(console=Console(file=file, width=120))
    listener.on_phase("train", total)
    now[0] = 10.0
    listener.on_progress(done)
    assert file.getvalue().splitlines()[-1].strip() == f"train: {done}/{total}, {said}"


def test_the_start_tells_an_environment_of_a_file_without_its_folders(tmp_path):
    file = tmp_path / "my_env.py"
    config = load_config("bandit-starpo-s-grpo-tiny", {"env.name": f"{file}:MyEnv"})
    (first, *_) = module.start_lines(config, None)
    assert first.startswith("my_env.py:MyEnv · tiny · ")


@pytest.mark.parametrize("width", [20, 80, 200])
def test_n15_no_line_of_the_table_or_an_evaluation_is_wider_than_a_terminal_of_80(width):
    assert len(module.header()) == len(module.step_line(1, METRIC_VALUES)) == module.LINE <= 78
    wide = Report(players={f"player-{i}": Player() for i in range(6)}, notes=("a note of many words " * 9,))
    lines = module.eval_lines("step-100-frozen_lake-slippery", wide)
    lines += module.start_lines(load_config("frozen_lake-starpo-s-ppo-small"), None)
    assert max(map(len, lines)) <= module.LINE
    told = " ".join(line.strip() for line in lines)
    for part in ("player-5 0.500 [0.400, 0.600]", "return 1.500 [1.000, 2.000]", "tokens an episode 30.0"):
        assert part in told


def test_n17_the_start_tells_method_sizes_steps_and_rate():
    text = " ".join(module.start_lines(load_config("bandit-starpo-s-grpo-tiny", ["--steps", "7"]), Path("runs/one")))
    for part in ("bandit", "tiny", "StarPO-S (grpo, top_fraction", "P × G = 8 × 16", "7 steps", "learning rate", "seed 0"):
        assert part in text
    assert "StarPO (gae)" in " ".join(module.start_lines(load_config("bandit-starpo-ppo"), None))


@pytest.mark.parametrize(
    ("result", "said", "not_said"),
    [
        (Result(), "ragen train --resume runs/one --steps 6", "--steps N"),
        (Result(stopped="interrupted", planned=40, after=None), "--resume runs/one   (to step 40)", "--steps"),
        (Result(stopped="interrupted", planned=40, after=None), "interrupted after step 3", "→"),
        (Result(stopped="interrupted", after=None), "--resume runs/one   (only evaluations are missing)", "to step"),
        (
            Result(stopped="stopped: every group was flat", planned=40, history=({"rollout/valid_format": 0.0},)),
            "valid format was 0.000",
            "--resume",
        ),
        (
            Result(stopped="stopped: Echo Trap at step 3", planned=40, signals=Signals(warning=3, spike=2)),
            "ragen train --resume runs/one --echo_trap.action warn",
            "valid format",
        ),
        (Result(signals=Signals(warning=3, spike=2)), "Echo Trap: early warning at step 3, spike at step 2", "collapse at"),
        (Result(), "all steps done", "Echo Trap"),
        (Result(), "all steps done", "rollback"),
        (Result(rollbacks=((8, 2),)), "1 rollback, from step 8 to 2 (runs/one/rollbacks)", "rollbacks,"),
        (Result(rollbacks=((38, 20), (61, 40))), "2 rollbacks, from step 38 to 20, from step 61 to 40", "Echo Trap"),
        (Result(flat=5), "in none of the last 5 steps did the returns of any group differ", "Echo Trap"),
        (Result(flat=4), "run: runs/one", "in none of the last"),
        (Result(steps=0, planned=0), "steps is 0: nothing was trained", "all steps done"),
        (Result(steps=0, planned=4, stopped="interrupted"), "interrupted after step 0", "look:"),
    ],
)
def test_n20_n21_the_end_says_exactly_what_helps(result, said, not_said):
    text = "\n".join(module.end_lines(result))
    assert said in text
    assert not_said not in text
    assert ("ragen show runs/one" in text) == (result.steps > 0)


class Gone(io.StringIO):
    """A place to write to that refuses, from the n-th write on."""

    def __init__(self, error, after):
        super().__init__()
        self.error, self.left = error, after

    def write(self, text):
        if self.left == 0:
            raise self.error
        self.left -= 1
        return super().write(text)


@pytest.mark.parametrize("after", [0, 1, 5])
@pytest.mark.parametrize("kind", [module.QuietConsole, module.PlainConsole, module.LiveConsole])
@pytest.mark.parametrize("number", [errno.EPIPE, errno.ENOSPC, errno.EIO], ids=errno.errorcode.get)
def test_b3_where_nobody_reads_the_console_falls_silent_and_the_run_goes_on(kind, number, after, monkeypatch):
    monkeypatch.setattr(module.os, "dup2", lambda *handles: None)  # rich points standard output elsewhere on a closed pipe
    file = Gone(OSError(number, "gone"), after)
    terminal = kind is module.LiveConsole
    play(kind(Console(file=file, width=80, force_terminal=terminal)))
    written = file.getvalue()
    play(kind(Console(file=io.StringIO())))  # another console is not affected
    assert file.getvalue() == written


@pytest.mark.parametrize("text", ["\ud800", "ä 🎲 \udfff"], ids=ascii)
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_b7_text_that_the_output_cannot_hold_is_spelled_out(text, encoding):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding)
    module.PlainConsole(Console(file=file, width=80)).on_message(f"said: {text}")
    file.flush()
    assert raw.getvalue().decode(encoding).startswith("said: ")


PRINTER = """
from ragen.runs.console import make_listener
listener = make_listener()
for number in range(20000):
    listener.on_message(f"line {number}")
import sys
print("went on", file=sys.stderr)
"""


@pytest.mark.parametrize("place", ["closed pipe", "/dev/full"])
def test_b3_a_real_process_goes_on_and_ends_well(place):
    if place == "closed pipe":
        command = '"$0" -c "$1" | head -n 3 >/dev/null; exit ${PIPESTATUS[0]}'
    elif Path(place).exists():
        command = f'"$0" -c "$1" > {place}'
    else:
        pytest.skip(f"needs {place}")
    done = subprocess.run(["bash", "-c", command, sys.executable, PRINTER], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "went on\n"
