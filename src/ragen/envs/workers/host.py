"""The asker's side of one worker: a process or a thread, replaced when it stalls or dies."""

import json
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from multiprocessing.connection import Connection
from typing import Any

from ragen.envs.registry import Factory, Made
from ragen.envs.workers.child import READY
from ragen.envs.workers.stage import Answer, Question, Stage
from ragen.errors import ConfigError

START_S = 120.0  # seconds a process may take to start, plugins included
FOUND_DEAD = 16  # times in all that a process may be gone without anything being asked of it
BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); from ragen.envs.workers.child import start; start()"


def _timeval(seconds: float) -> bytes:
    """A time as the system's calls take it; 0 would be no limit."""
    return struct.pack("ll", int(seconds), max(1, int(seconds % 1 * 1e6)))


class Lost(Exception):
    """No answer came, and the worker was given up; the message says why, as a predicate of the call."""


class Host(ABC):
    """One worker. ``generation`` grows when what it knew is gone; ``lock`` is held around questions that belong together."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.generation = 0
        self.replaced = 0
        self.lock = threading.RLock()
        self.forgotten: list[int] = []  # environments that nobody has any more

    @abstractmethod
    def source(self, make: Factory) -> Any:
        """What the worker makes an environment from."""

    @abstractmethod
    def ready(self) -> None:
        """See that there is a worker; a new ``generation`` where it had to be started."""

    @abstractmethod
    def ask(self, question: Question) -> Answer:
        """The answer, or Lost after ``timeout_s`` seconds, or when the worker dies."""

    @abstractmethod
    def interrupt(self) -> None:
        """Make a question that waits for its answer Lost; from another thread than the one that asks."""

    @abstractmethod
    def end(self) -> None:
        """Give the worker up, whatever it is doing; while nobody asks."""


class ProcessHost(Host):
    """A worker process, started when it is first needed."""

    def __init__(self, timeout_s: float, plugins: tuple[str, ...]) -> None:
        super().__init__(timeout_s)
        self._plugins = plugins
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None
        self._found_dead = 0

    def source(self, make: Factory) -> Any:
        """The config's section ``env``: a function cannot cross to another process."""
        if not isinstance(make, Made):
            raise ConfigError(
                "rollout.env_mode 'process' needs an environment with a name: set rollout.env_mode to 'thread'"
            )
        return make.spec

    def ready(self) -> None:
        """Start the process where there is none, or none any more."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            self._found_dead += 1
            self.replaced += 1
            code = self._process.returncode
            self.end()
            if self._found_dead > FOUND_DEAD:
                raise Lost(f"was not asked: its worker process ended by itself {FOUND_DEAD} times (exit code {code})")
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):  # for a process that stalls in the middle of a message
                ours.setsockopt(socket.SOL_SOCKET, way, _timeval(self.timeout_s))
            command = [sys.executable, "-c", BOOT, json.dumps(sys.path), str(theirs.fileno()), *self._plugins]
            self._process = subprocess.Popen(command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL)
            self._connection = Connection(ours.detach())
        self.generation += 1
        try:
            said = self._connection.recv() if self._heard(START_S) else None
        except (EOFError, OSError):  # it ended before it said a word
            said = None
        if said != READY:
            self.end()
            raise ConfigError(f"a worker process for environments does not start: {said or 'see what it printed above'}")

    def ask(self, question: Question) -> Answer:
        """The answer of the process; killed where it gives none."""
        begun = time.monotonic()
        try:
            if self._connection is None:
                raise Lost("was not asked: its worker process was ended")
            self._connection.send(question)
            if self._heard(self.timeout_s):
                answer: Answer = self._connection.recv()
                return answer
            problem = f"gave no answer in {self.timeout_s:g} s (rollout.env_timeout_s)"
        except BlockingIOError:
            problem = f"took or gave only a part of a message in {self.timeout_s:g} s (rollout.env_timeout_s)"
        except (EOFError, OSError):
            problem = ""
        except Exception as error:  # it answered with something that is not known here
            problem = f"gave an answer that cannot be read: {type(error).__name__}: {error}"
        code = self._gone(wait=not problem)
        self.replaced += 1
        self.end()
        raise Lost(problem or f"ended its process after {time.monotonic() - begun:.1f} s ({code})")

    def _heard(self, seconds: float) -> bool:
        try:
            return self._connection is not None and self._connection.poll(seconds)
        except (EOFError, OSError):
            return True  # what follows tells

    def _gone(self, *, wait: bool) -> str:
        """How the process ended, where it did."""
        if self._process is None:
            return "by the asker"
        if wait:
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                return "its connection is closed"
        code = self._process.poll()
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def interrupt(self) -> None:
        """Kill the process: whoever waits for it sees its connection close."""
        if (process := self._process) is not None:
            process.kill()

    def end(self) -> None:
        """Kill the process and wait for it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None


class ThreadHost(Host):
    """A worker thread. One that stalls cannot be ended: it is left alone, and another one takes the other environments."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(timeout_s)
        self._stage = Stage(lambda make: make())
        self._questions: queue.SimpleQueue[tuple[Question, queue.SimpleQueue[Answer]] | None] | None = None
        self._waiting: queue.SimpleQueue[Answer] | None = None

    def source(self, make: Factory) -> Any:
        """The function itself."""
        return make

    def ready(self) -> None:
        """Start the thread where there is none."""
        if self._questions is None:
            self._questions = queue.SimpleQueue()
            threading.Thread(target=self._work, args=(self._questions,), daemon=True, name="environments").start()

    def ask(self, question: Question) -> Answer:
        """The answer of the thread; left alone where it gives none."""
        self.ready()
        reply: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._waiting = reply  # before it is asked: an interruption may come at once
        if self._questions is not None:
            self._questions.put((question, reply))
        try:
            return reply.get(timeout=self.timeout_s)
        except queue.Empty:
            self.replaced += 1
            self.end()
            raise Lost(f"gave no answer in {self.timeout_s:g} s (rollout.env_timeout_s)") from None

    def interrupt(self) -> None:
        """Answer in the environment's place."""
        if (waiting := self._waiting) is not None:
            waiting.put(Answer(fault="was given up"))

    def end(self) -> None:
        """Let the thread end once it is free."""
        if self._questions is not None:
            self._questions.put(None)
            self._questions = None

    def _work(self, questions: "queue.SimpleQueue[tuple[Question, queue.SimpleQueue[Answer]] | None]") -> None:
        while (asked := questions.get()) is not None:
            question, reply = asked
            try:
                reply.put(self._stage.answer(question))
            except BaseException as error:  # whatever it is, it costs one episode
                reply.put(Answer(fault=f"{question.method}() raised {type(error).__name__}: {error}"))
