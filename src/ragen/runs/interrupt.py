"""Ctrl-C: the first asks for a stop after this step, the second abandons the step, the third ends at once."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

INTERRUPTED = "interrupted"  # why a run ended that Ctrl-C stopped


class StepAbandoned(KeyboardInterrupt):
    """The current step was given up where nothing had been changed yet."""


class Interrupt:
    """While entered, catches SIGINT and SIGTERM; called, it says whether to stop before the next step.

    A second signal raises StepAbandoned, but only inside ``abandonable()``: around work that changes no weights
    (collecting, evaluating). Elsewhere it waits until the change is complete, so that what is saved is a whole step.
    A third raises KeyboardInterrupt at once; the checkpoints on disk are whole in any case.
    """

    def __init__(self, say: Callable[[str], None] = lambda text: None, work: str = "step") -> None:
        self._say, self._usual = say, work
        self._count = 0
        self._abandonable = False
        self._work = work
        self._previous: dict[int, Any] = {}

    def __call__(self) -> bool:
        """Whether a stop was asked for."""
        return self._count > 0

    def __enter__(self) -> "Interrupt":
        """Catch the signals (in the main thread only: elsewhere Python has no handlers)."""
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._caught)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    @contextmanager
    def abandonable(self, work: str = "") -> Iterator[None]:
        """Around work that may be given up in the middle without a trace; ``work`` names it where it is not the usual."""
        if self._count > 1:
            raise StepAbandoned
        self._abandonable, self._work = True, work or self._usual
        try:
            yield
        finally:
            self._abandonable, self._work = False, self._usual

    def _caught(self, number: int, frame: FrameType | None) -> None:
        self._count += 1
        if self._count == 1:
            self._say(f"Stopping after this {self._work}. Press Ctrl-C again to abandon it.")
        elif self._count == 2:
            does = f"Abandoning the {self._work}" if self._abandonable else "Finishing the update, which cannot be abandoned"
            self._say(f"{does}, then saving. Press Ctrl-C again to end without saving.")
            if self._abandonable:
                raise StepAbandoned
        else:
            raise KeyboardInterrupt
