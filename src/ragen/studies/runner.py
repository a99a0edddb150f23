"""Runs a study: one process a run, some side by side; done runs are skipped, interrupted ones go on, failures are kept."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ragen.errors import ConfigError
from ragen.loops.compose import world_of
from ragen.loops.plan import fitting
from ragen.runs.interrupt import Interrupt, StepAbandoned
from ragen.studies.grid import Plan, StudyRun
from ragen.studies.place import Place, State
from ragen.wording import counted

POLL_S = 0.5


class Process(Protocol):
    """What the runner needs of a started run (``subprocess.Popen`` has it)."""

    def poll(self) -> int | None:
        """Its exit status, None while it runs."""

    def send_signal(self, sig: int, /) -> None:
        """Tell it to stop (SIGINT: after this step)."""

    def kill(self) -> None:
        """End it at once."""


Start = Callable[[Sequence[str], Path], Process]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a study is: steps done of those that were to do in this call, the runs in work with their steps, time left.

    ``left_s`` is the time used so far · steps left / steps done now; None before the first step.
    """

    done: int
    total: int
    running: tuple[tuple[StudyRun, int], ...]
    left_s: float | None


class StudyListener(Protocol):
    """Told how a study goes on."""

    def on_begin(self, states: dict[str, State], workers: int, threads: int) -> None:
        """The state of every run, and how many are worked on side by side, with how many threads each."""

    def on_progress(self, progress: Progress) -> None:
        """From time to time."""

    def on_end(self, run: StudyRun, what: str) -> None:
        """A run has ended: ``what`` is "done" (with its steps, where it ended early), "interrupted", why it failed, or that
        another process has done it or works on it.
        """

    def on_message(self, text: str) -> None:
        """Something worth a line."""


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Names of runs by how they stand now; ``failed`` with the last words of each. ``busy`` runs are in other processes."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    busy: tuple[str, ...]
    interrupted: bool


def run_study(
    plan: Plan, place: Place, listener: StudyListener, *, workers: int, threads: int, start: Start | None = None
) -> StudyResult:
    """Run what is not done yet, ``workers`` runs at a time, each on ``threads`` threads where its settings name no number.

    Ctrl-C stops every run after its step, with a checkpoint; a second one abandons the steps, a third ends at once.
    """
    runs = plan.runs()
    states = {name: place.state(run) for name, run in runs.items()}
    check_new(plan, states)
    listener.on_begin(states, workers, threads)
    todo = [run for name, run in runs.items() if states[name] in ("new", "begun")]
    pool = _Pool(place, listener, todo, threads, keep_checkpoints=plan.study.keep_checkpoints, start=start or start_process)
    with Interrupt(listener.on_message) as interrupt:
        try:
            pool.work(workers, interrupt)
        finally:
            pool.kill()
    now = {**states, **pool.left}
    done = tuple(name for name, state in now.items() if state == "done") + tuple(pool.finished)
    return StudyResult(done, tuple(pool.failed), tuple(n for n, s in now.items() if s == "busy"), interrupt())


def check_new(plan: Plan, states: Mapping[str, State]) -> None:
    """Raise ConfigError for a variant whose new runs would each be refused as they start: after hours, the last of them."""
    for variant in plan.variants:
        if "new" not in [states[run.name] for run in variant.runs]:
            continue
        config = variant.runs[0].config
        try:
            fitting(config, world_of(config))
        except ConfigError as error:
            raise ConfigError(f"size {plan.size}, {variant}: {error}") from None


def start_process(words: Sequence[str], log: Path) -> Process:
    """Start ``ragen train`` in a session of its own (Ctrl-C reaches it through the runner only), its output in ``log``.

    What an earlier start printed goes, so that the last words of a failed run are its own.
    """
    command = [sys.executable, "-m", "ragen.cli.main", "train", *words]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )


class _Pool:
    """Runs that wait, that are worked on, and that have ended."""

    def __init__(
        self,
        place: Place,
        listener: StudyListener,
        todo: Sequence[StudyRun],
        threads: int,
        *,
        keep_checkpoints: bool,
        start: Start,
    ) -> None:
        self.place, self.listener, self.threads, self.start = place, listener, threads, start
        self.keep_checkpoints = keep_checkpoints
        self.waiting = list(todo)
        self.running: dict[str, tuple[StudyRun, Process, float]] = {}
        self.finished: list[str] = []
        self.failed: list[tuple[str, str]] = []
        self.left: dict[str, State] = {}  # what other processes took in the meantime
        self.told = 0  # how often the running ones were told to stop
        self._todo = tuple(todo)
        self._began = {run.name: place.steps_done(run) for run in todo}
        self._since = time.monotonic()

    def work(self, workers: int, interrupt: Interrupt) -> None:
        """Until every run has ended, or, after Ctrl-C, until those that were running have stopped."""
        while self.running or (self.waiting and not interrupt()):
            while len(self.running) < workers and self.waiting and not interrupt():
                self._begin(self.waiting.pop(0))
            wanted = 1 if interrupt() else 0
            try:
                with interrupt.abandonable("step of each run"):
                    time.sleep(POLL_S)
            except StepAbandoned:
                wanted = 2
                time.sleep(POLL_S)
            if self.told < wanted:
                self.told += 1
                for _, process, _ in self.running.values():
                    process.send_signal(signal.SIGINT)
            self._collect()
            self.listener.on_progress(self._progress())

    def kill(self) -> None:
        """End what still runs; its last checkpoint is whole."""
        for run, process, since in self.running.values():
            process.kill()
            self.place.leave(run, time.monotonic() - since)
            self.place.release(run)

    def _begin(self, run: StudyRun) -> None:
        """Start a run, unless another process has taken it since the states were read."""
        try:
            state = self.place.state(run) if self.place.claim(run) else "busy"
            if state in ("done", "busy"):
                self.left[run.name] = state
                self.listener.on_end(run, "done by another process" if state == "done" else "left to another process")
            else:
                process = self.start(self.place.prepare(run, self.threads), self.place.log(run))
                self.running[run.name] = (run, process, time.monotonic())
        except Exception as error:  # a run that cannot start must not stop the others
            self._fail(run, str(error))
        finally:
            if run.name not in self.running:
                self.place.release(run)

    def _collect(self) -> None:
        for name, (run, process, since) in list(self.running.items()):
            status = process.poll()
            if status is None:
                continue
            seconds = time.monotonic() - since
            if status == 0:
                self.place.finish(run, seconds, keep_checkpoints=self.keep_checkpoints)
            else:
                self.place.leave(run, seconds)
            del self.running[name]
            self.place.release(run)
            if status == 0:
                self.finished.append(name)
                steps, planned = self.place.steps_done(run), run.config.steps
                early = f", ended after {steps} of {counted(planned, 'step')}" if steps < planned else ""
                self.listener.on_end(run, f"done{early}")
            elif self.told:
                self.listener.on_end(run, "interrupted")
            else:
                self._fail(run, _last_words(self.place.log(run), status))

    def _fail(self, run: StudyRun, why: str) -> None:
        self.failed.append((run.name, why))
        self.listener.on_end(run, why)

    def _progress(self) -> Progress:
        """Steps; a run that has ended counts with all its steps, whether or not it made them."""
        ended = {*self.finished, *self.left, *(name for name, _ in self.failed)}
        total = sum(run.config.steps - self._began[run.name] for run in self._todo)
        now = {run.name: run.config.steps if run.name in ended else self.place.steps_done(run) for run in self._todo}
        done = sum(max(0, now[name] - self._began[name]) for name in now)
        left = (time.monotonic() - self._since) / done * (total - done) if done > 0 else None
        return Progress(done, total, tuple((run, now[name]) for name, (run, _, _) in self.running.items()), left)


def _last_words(log: Path, status: int) -> str:
    """The error that a failed run printed, or its last line."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("error: ")]
    return (errors or lines or [f"exit status {status}"])[-1].removeprefix("error: ")
