"""Several workers side by side, each with its share of the environments."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import cycle
from typing import Literal, TypeVar

from ragen.envs.base import Environment
from ragen.envs.guard import Guarded, Unmade, guarded, made
from ragen.envs.registry import Factory
from ragen.envs.workers.base import Work
from ragen.envs.workers.host import Host, Lost, ProcessHost, ThreadHost
from ragen.envs.workers.remote import Remote
from ragen.envs.workers.stage import MAKE, Question
from ragen.errors import ConfigError, EnvironmentFault

T = TypeVar("T")
Mode = Literal["process", "thread"]


class Pool:
    """``count`` workers; an episode stays with the one that it was given to, in order, so shares are even."""

    def __init__(self, count: int, mode: Mode, *, timeout_s: float, plugins: tuple[str, ...] = ()) -> None:
        self._hosts: list[Host] = [
            ProcessHost(timeout_s, plugins) if mode == "process" else ThreadHost(timeout_s) for _ in range(count)
        ]
        self._turn = cycle(self._hosts)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="asking")

    @property
    def replaced(self) -> int:
        """Workers that stalled or died and were replaced."""
        return sum(host.replaced for host in self._hosts)

    def environments(self, make: Factory, count: int) -> list[Environment]:
        """``count`` environments; they are made in their workers when they are first asked."""
        pattern = _pattern(make, count)
        if isinstance(pattern, Unmade):
            return [pattern] * count
        return [Remote(next(self._turn), make, pattern) for _ in range(count)]

    def each(self, work: Sequence[Work[T]]) -> list[T]:
        """The results in the order of ``work``; what one worker has to do it does in that order.

        Whatever interrupts it gives the workers up, and with them what they were doing.
        """
        shares: dict[int, list[int]] = {}
        for place, (env, _) in enumerate(work):
            shares.setdefault(self._index(env), []).append(place)
        results: dict[int, T] = {}
        given_up = threading.Event()

        def do(places: list[int]) -> None:
            for place in places:
                if not given_up.is_set():
                    results[place] = work[place][1]()

        running = [self._threads.submit(do, places) for places in shares.values()]
        try:
            for each in running:
                each.result()
        except BaseException:
            given_up.set()
            for host in self._hosts:
                host.interrupt()
            wait(running)
            self._end()
            raise
        return [results[place] for place in range(len(work))]

    def try_out(self, make: Factory) -> None:
        """ConfigError where a worker cannot make the environment, or makes another than the one that is made here."""
        here, host = guarded(make()), self._hosts[0]
        try:
            with host.lock:
                host.ready()
                answer = host.ask(Question(-1, MAKE, {"source": host.source(make), "forget": []}))
        except (Lost, EnvironmentFault) as error:
            raise ConfigError(_not_there(here.name, f"making it {error}")) from None
        if answer.fault is not None:
            raise ConfigError(_not_there(here.name, answer.fault))
        if answer.value != (here.name, here.settings.model_dump(mode="json")):
            raise ConfigError(_not_there(here.name, f"there it is {answer.value[0]} with other settings"))

    def close(self) -> None:
        """End all workers."""
        self._end()
        self._threads.shutdown(cancel_futures=True)

    def _end(self) -> None:
        for host in self._hosts:
            host.end()

    def _index(self, env: Environment) -> int:
        return self._hosts.index(env.host) if isinstance(env, Remote) else 0


def _pattern(make: Factory, tries: int) -> Guarded:
    """One of the environments, made here; one that could not be made only where none of ``tries`` could.

    Without workers as many would be made, and each that fails would cost its episode alone.
    """
    env = made(make)
    for _ in range(tries - 1):
        if not isinstance(env, Unmade):
            break
        env = made(make)
    return env


def _not_there(name: str, why: str) -> str:
    return (
        f"rollout.env_workers: a worker process cannot make '{name}': {why}. Put its class into a file of its own (--env "
        "FILE.py:Class), name what registers it in `plugins`, or set rollout.env_mode to 'thread'"
    )
