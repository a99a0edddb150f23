"""What a person sees while a study runs: a bar with the time left in a terminal, plain lines elsewhere."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ragen.studies.grid import StudyRun
from ragen.studies.place import State
from ragen.studies.runner import Progress as StudyProgress
from ragen.wording import counted, printable

PLAIN_EVERY_S = 60.0


class StudyConsole:
    """Listens to ``run_study``; a context manager, so that the terminal is left as it was."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self._ended, self._todo = 0, 0
        self._spoke = time.monotonic()
        live = self.console.is_terminal and not self.console.is_dumb_terminal
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[steps]}"), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self.console, transient=True) if live else None
        self._task = self._bar.add_task("", total=None, steps="") if self._bar is not None else None

    def __enter__(self) -> "StudyConsole":
        """Show the bar."""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def on_begin(self, states: dict[str, State], workers: int, threads: int) -> None:
        """How many runs there are to do, and how."""
        self._todo = sum(state in ("new", "begun") for state in states.values())
        counts = {what: sum(state == key for state in states.values()) for key, what in _WORDS.items()}
        told = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        self.on_message(f"{told}; {workers} side by side, {counted(threads, 'thread')} each unless set")

    def on_progress(self, progress: StudyProgress) -> None:
        """Move the bar, or say now and then how far it is."""
        left = "" if progress.left_s is None else f", about {duration(progress.left_s)} left"
        steps = f"{progress.done}/{counted(progress.total, 'step')}{left}"
        if self._bar is not None and self._task is not None:
            words = f"{self._ended}/{counted(self._todo, 'run')}"
            self._bar.update(self._task, completed=progress.done, total=progress.total, description=words, steps=steps)
        elif time.monotonic() - self._spoke >= PLAIN_EVERY_S:
            self._spoke = time.monotonic()
            self.on_message(f"  {self._ended}/{counted(self._todo, 'run')}, {steps}")

    def on_end(self, run: StudyRun, what: str) -> None:
        """A line for each run that ends."""
        self._ended += 1
        self.on_message(f"[{self._ended}/{self._todo}] {run.name}: {what if len(what) < 200 else what[:200] + ' …'}")

    def on_message(self, text: str) -> None:
        """A line above the bar."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)


_WORDS = {"done": "done before", "new": "to run", "begun": "to go on with", "busy": "in another process"}


def duration(seconds: float) -> str:
    """A time left in words, as exact as an estimate deserves."""
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{max(1, minutes)} min"
