"""A worker process: makes environments by their names, acts in them, and ends with the process that started it.

It loads what environments load and no torch (about 0.4 s), unless a plugin or the environment's own file does.
"""

import json
import os
import queue
import signal
import sys
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

from ragen.envs.base import Environment
from ragen.envs.registry import Factory, find_environment
from ragen.envs.workers.stage import Answer, Question, Stage
from ragen.errors import RagenError
from ragen.modules import load_plugins

READY = "ready"


def serve(descriptor: int, plugins: tuple[str, ...]) -> None:
    """Answer until the other end of the connection is closed.

    A thread of its own listens, so that the process ends with its asker even while an environment hangs. Ctrl-C is for the
    asker: a worker that took it would break the step that it is to finish.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    connection: Connection[Any, Any] = Connection(descriptor)
    try:
        load_plugins(plugins)
    except RagenError as error:
        connection.send(str(error))
        return
    connection.send(READY)
    questions: queue.SimpleQueue[Question] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, questions), daemon=True).start()
    stage = Stage(_Makers())
    while True:
        answer = stage.answer(questions.get())
        try:
            connection.send(answer)
        except OSError:  # the asker is gone
            os._exit(1)
        except Exception as error:
            connection.send(Answer(fault=f"what it gave cannot be sent to another process: {type(error).__name__}: {error}"))


class _Makers:
    """Environments by a config's section ``env``; each is looked up once."""

    def __init__(self) -> None:
        self._known: dict[str, Factory] = {}

    def __call__(self, spec: Mapping[str, Any]) -> Environment:
        key = json.dumps(spec, sort_keys=True, default=str)
        if key not in self._known:
            self._known[key] = find_environment(spec).make
        return self._known[key]()


def _listen(connection: "Connection[Any, Any]", questions: "queue.SimpleQueue[Question]") -> None:
    try:
        while True:
            questions.put(connection.recv())
    except (EOFError, OSError):
        os._exit(1)


def start() -> None:
    """The entry: descriptor and plugins come on the command line."""
    serve(int(sys.argv[1]), tuple(sys.argv[2:]))
