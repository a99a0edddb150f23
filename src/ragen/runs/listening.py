"""A console listener for the length of a command, with the library's log messages among its lines."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ragen.runs.console import LiveConsole, make_listener
from ragen.runs.listener import Listener


class _Relay(logging.Handler):
    def __init__(self, listener: Listener) -> None:
        super().__init__(logging.INFO)
        self._listener = listener

    def emit(self, record: logging.LogRecord) -> None:
        self._listener.on_message(record.getMessage())


@contextmanager
def listening(*, quiet: bool = False) -> Iterator[Listener]:
    """The listener that fits the terminal; whatever happens, the terminal is left as it was."""
    listener = make_listener(quiet=quiet)
    log = logging.getLogger("ragen")
    relay, level, propagate = _Relay(listener), log.level, log.propagate
    log.addHandler(relay)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield listener
    finally:
        log.removeHandler(relay)
        log.setLevel(level)
        log.propagate = propagate
        if isinstance(listener, LiveConsole):
            listener.close()
