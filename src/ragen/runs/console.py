"""What a person sees while a run goes on: a live bar and a table in a terminal, plain lines elsewhere."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ragen.config.schema import Config
from ragen.envs.locate import shown
from ragen.metrics.curves import WINDOW
from ragen.runs.interrupt import INTERRUPTED
from ragen.runs.listener import Listener, Silent
from ragen.runs.summary import ECHO_TRAP, paper_name
from ragen.wording import at_temperature, counted

COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("success", "rollout/success", ".3f"),
    ("return", "rollout/return_mean", ".3f"),
    ("std", "rollout/return_std", ".3f"),
    ("entropy", "rollout/entropy", ".3f"),
    ("grad", "update/grad_norm", ".3f"),
    ("format", "rollout/valid_format", ".3f"),
    ("tokens/s", "time/tokens_per_s", ".0f"),
    ("step s", "time/step_s", ".1f"),
)
_WIDTH = 9
LINE = 6 + _WIDTH * len(COLUMNS)  # fits into a terminal of 80
_HEADER_EVERY = 25
_PLAIN_EVERY_S = 10.0


def make_listener(*, quiet: bool = False, console: Console | None = None) -> Listener:
    """The listener that fits: quiet, live for a terminal, plain lines for a file or a pipe."""
    console = console or Console()
    if quiet:
        return QuietConsole(console)
    return LiveConsole(console) if console.is_terminal and not console.is_dumb_terminal else PlainConsole(console)


def header() -> str:
    """The titles of the step table."""
    return "step".rjust(6) + "".join(title.rjust(_WIDTH) for title, _, _ in COLUMNS)


def step_line(step: int, metrics: Mapping[str, float]) -> str:
    """One row of the step table; what was not measured is a dash."""
    return str(step).rjust(6) + "".join(_number(metrics.get(key), form).rjust(_WIDTH) for _, key, form in COLUMNS)


def start_lines(config: Config, run_dir: Path | None) -> list[str]:
    """What runs, by which method, and where."""
    chosen, optim, rollout = config.filter, config.optim, config.rollout
    filtered = chosen.strategy != "none"
    how = f"{config.advantage.name}, {chosen.strategy} {chosen.value:g}" if filtered else config.advantage.name
    parts = [
        shown(str(config.env.get("name"))),
        config.model.name,
        f"{paper_name(config)} ({how})",
        f"P × G = {rollout.groups} × {rollout.members}",
        counted(config.steps, "step"),
        f"learning rate {optim.learning_rate:g}",
        f"seed {config.seed}",
    ]
    return [*_wrapped(parts), *([f"run: {run_dir}"] if run_dir is not None else [])]


def eval_lines(name: str, report: Any) -> list[str]:
    """An evaluation in words: success and return with intervals, the task return, then what stands beside them."""
    below, above = report.return_interval
    count = f"{report.episodes} × {report.samples}" if report.samples > 1 else str(report.episodes)
    lines = _wrapped(
        [
            f"{name}: success {_rate(report)}",
            f"return {report.total_return:.3f} [{below:.3f}, {above:.3f}]",
            f"task return {report.task_return:.3f}",
            f"n = {count}",
            at_temperature(report.temperature),
            "95 % intervals",
        ]
    )
    told = [f"valid format {report.valid_format:.3f}", f"turns {report.turns:.2f}", f"tokens an episode {report.tokens:.1f}"]
    if report.pass_at_k is not None:
        told.append(f"pass@{report.samples} {report.pass_at_k:.3f}")
    if report.errors:
        told.append(f"{counted(report.errors, 'episode')} lost to errors")
    beside = [
        f"{who} {score.success:.3f} [{score.interval[0]:.3f}, {score.interval[1]:.3f}]"
        for who, score in report.players.items()
    ]
    if report.ceiling is not None:
        beside.append(f"best possible {report.ceiling:.3f}")
    lines += _wrapped(told, indent="  ")
    if beside:
        lines += _wrapped([f"same instances: {beside[0]}", *beside[1:]], indent="  ")
    for note in report.notes:
        lines += wrap(f"note: {note}", LINE, initial_indent="  ", subsequent_indent="    ")
    return lines


def end_lines(result: Any) -> list[str]:
    """Where a run ended and what to type next."""
    lines = [f"{result.stopped} after step {result.steps}" if result.planned else "steps is 0: nothing was trained"]
    if result.before is not None and result.after is not None and result.before is not result.after:
        lines.append(f"success before {_rate(result.before)} → after {_rate(result.after)}")
    if result.rollbacks:
        steps = ", ".join(f"from step {at} to {to}" for at, to in result.rollbacks)
        lines.append(f"{counted(len(result.rollbacks), 'rollback')}, {steps} ({result.run}/rollbacks)")
    seen = {"early warning": result.signals.warning, "spike": result.signals.spike, "collapse": result.signals.collapsed}
    given = [f"{name} at step {step}" for name, step in seen.items() if step is not None]
    lines += [f"Echo Trap: {', '.join(given)} (docs/collapse.md)"] if given else []
    if result.flat >= WINDOW:
        last = counted(result.flat, "step")
        lines.append(f"in none of the last {last} did the returns of any group differ: they taught hardly anything")
    lines.append(f"run: {result.run}")
    if result.steps:
        lines.append(f"look:   ragen show {result.run}   (in a browser: ragen report {result.run})")
    return [*lines, *_next_lines(result)]


def _next_lines(result: Any) -> list[str]:
    resume = f"ragen train --resume {result.run}"
    if result.stopped == INTERRUPTED:
        left = f"to step {result.planned}" if result.steps < result.planned else "only evaluations are missing"
        return [f"go on:  {resume}   ({left})"]
    if result.steps >= result.planned:
        return [f"longer: {resume} --steps {max(1, 2 * result.steps)}"]
    if result.stopped.startswith(ECHO_TRAP):
        return [
            f"go on all the same: {resume} --echo_trap.action warn",
            "Otherwise a new run with a stronger filter (docs/collapse.md), a lower --optim.learning_rate, or",
            "  --echo_trap.action rollback, which lowers the learning rate by itself.",
        ]
    valid = result.history[-1].get("rollout/valid_format", math.nan) if result.history else math.nan
    return [
        f"valid format was {_number(valid, '.3f')} in the last step. Where it is low, warm up more: a new run with",
        "  --warmup.data format, or more --warmup.demonstrations or --warmup.epochs.",
        "Where it is high, all episodes of a group end alike: solved, hopeless, or one reply only.",
    ]


class QuietConsole(Silent):
    """Says only how it ended. Where nobody reads any more (closed pipe, full disk) it falls silent; the run goes on."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def _say(self, text: str) -> None:
        known = text.encode(self.console.encoding, "backslashreplace").decode(self.console.encoding)
        with self._unless_nobody_reads():
            self.console.print(known, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def _unless_nobody_reads(self) -> Iterator[None]:
        try:
            yield
        except (OSError, SystemExit):  # rich ends the process on a closed pipe
            self.console.quiet = True
            with suppress(OSError), open(os.devnull, "wb") as nothing:  # noqa: PTH123 (what is buffered must go somewhere)
                os.dup2(nothing.fileno(), self.console.file.fileno())

    def on_end(self, result: Any) -> None:
        """How it ended, in full."""
        for line in end_lines(result):
            self._say(line)


class PlainConsole(QuietConsole):
    """Plain lines: a row a step, and long phases from time to time."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._name, self._total, self._done = "", 0, 0
        self._started = self._spoke = time.monotonic()
        self._rows = 0

    def on_start(self, config: Config, run_dir: Path | None) -> None:
        """What runs and where."""
        for line in start_lines(config, run_dir):
            self._say(line)

    def on_phase(self, name: str, total: int) -> None:
        """A heading."""
        self._name, self._total, self._done, self._rows = name, total, 0, 0
        self._started = self._spoke = time.monotonic()
        self._say(f"{name} …" if total <= 0 else f"{name} ({total}) …")

    def on_progress(self, done: int) -> None:
        """Now and then, how far it is and how long it will take."""
        self._done += done
        now = time.monotonic()
        if now - self._spoke >= _PLAIN_EVERY_S and self._total > 0:
            self._spoke = now
            left = (now - self._started) * (self._total - self._done) / max(1, self._done)
            self._say(f"  {self._name}: {self._done}/{self._total}, {_left(left)}")

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A row, under a heading now and then."""
        if self._rows % _HEADER_EVERY == 0:
            self._say(header())
        self._rows += 1
        self._say(step_line(step, metrics))

    def on_eval(self, name: str, report: Any) -> None:
        """The evaluation in words."""
        for line in eval_lines(name, report):
            self._say(line)

    def on_message(self, text: str) -> None:
        """The message."""
        self._say(text)


class LiveConsole(PlainConsole):
    """The same lines above a bar with the time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._progress: Progress | None = None
        self._task = TaskID(0)

    def on_phase(self, name: str, total: int) -> None:
        """A new bar."""
        self.close()
        self._name, self._total, self._rows = name, total, 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("after"),
            TimeElapsedColumn(),
            TextColumn("· left"),
            TimeRemainingColumn(),
            console=self.console,
            transient=True,
        )
        self._task = self._progress.add_task(name, total=total if total > 0 else None)
        with self._unless_nobody_reads():
            self._progress.start()

    def on_progress(self, done: int) -> None:
        """Move the bar."""
        if self._progress is not None:
            self._progress.advance(self._task, done)

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        """A row, and the bar moves."""
        super().on_step(step, metrics)
        self.on_progress(1)

    def on_eval(self, name: str, report: Any) -> None:
        """The bar is done with."""
        self.close()
        super().on_eval(name, report)

    def on_end(self, result: Any) -> None:
        """The bar is done with."""
        self.close()
        super().on_end(result)

    def close(self) -> None:
        """Take the bar away (also after an error, so that the terminal is left as it was)."""
        if self._progress is not None:
            with self._unless_nobody_reads():
                self._progress.stop()
            self._progress = None


def _wrapped(parts: Sequence[str], indent: str = "") -> list[str]:
    """Parts joined by " · " on lines of at most LINE characters; a part is never cut."""
    lines = [indent + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 3 <= LINE:
            lines[-1] += f" · {part}"
        else:
            lines.append(f"{indent}  {part}")
    return lines


def _number(value: float | None, form: str) -> str:
    return "–" if value is None or not math.isfinite(value) else format(value, form)


def _rate(report: Any) -> str:
    low, high = report.success_interval
    return f"{report.success:.3f} [{low:.3f}, {high:.3f}]"


def _left(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if not minutes and not rest:
        return "nearly done"
    return f"about {minutes} min {rest} s left" if minutes else f"about {rest} s left"
