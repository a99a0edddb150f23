"""The thread that owns the model: requests that wait together are sampled together, in lock-step batches."""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ragen.episode import Completion
from ragen.errors import RagenError
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.hf import HFSampler
from ragen.serving.protocol import RequestError

GATHER = 0.005  # seconds in which requests that come at the same time find each other
WAITING = 256  # replies
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """Replies to one prompt: one a seed. ``hear(choice, id)`` is told each id as it is sampled, ``done`` the end, once."""

    context: tuple[int, ...]
    params: SamplingParams
    seeds: tuple[int, ...]
    max_new_tokens: int
    hear: Callable[[int, int], None] | None
    done: Callable[[Sequence[Completion] | RequestError], None]


class Worker(threading.Thread):
    """Samples jobs in the order they came, all waiting ones with the same parameters in one batch of ``rows`` replies.

    The sampler decodes a batch from its first to its last token, so a job that comes later waits for the batch at hand.
    Each row takes the free slot that gains most, so a conversation that goes on costs only its new tokens.
    """

    def __init__(self, sampler: HFSampler, rows: int) -> None:
        super().__init__(name="ragen-serve", daemon=True)
        self._sampler, self._rows = sampler, rows
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._stopping = False
        self._held: list[tuple[int, ...]] = [()] * rows

    def submit(self, job: Job) -> None:
        """Take a job; RequestError (429) where too many wait already."""
        with self._changed:
            if self._stopping:
                raise RequestError("the server is stopping", status=503)
            if sum(len(waiting.seeds) for waiting in self._jobs) + len(job.seeds) > WAITING:
                raise RequestError("too many requests are waiting; try again later", status=429, code="rate_limit_exceeded")
            self._jobs.append(job)
            self._changed.notify()

    def stop(self) -> None:
        """Finish the batch at hand and refuse the rest."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.join()

    def run(self) -> None:
        """Work until ``stop``."""
        while batch := self._next():
            try:
                self._sample(batch)
            except RagenError as error:
                self._fail(batch, str(error))
            except Exception as error:
                log.warning("a batch of %d requests failed: %s: %s", len(batch), type(error).__name__, error)
                self._fail(batch, "the server failed on this request; its log says why")
        self._fail(list(self._jobs), "the server is stopping")

    def _next(self) -> list[Job]:
        """The next batch; an empty one is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._jobs or self._stopping)
        time.sleep(GATHER)
        with self._changed:
            if self._stopping:
                return []
            first, room, batch = self._jobs[0], self._rows, list[Job]()
            for job in list(self._jobs):
                if job.params == first.params and len(job.seeds) <= room:
                    batch.append(job)
                    room -= len(job.seeds)
                    self._jobs.remove(job)
            return batch

    def _sample(self, batch: Sequence[Job]) -> None:
        places = [(job, choice) for job in batch for choice in range(len(job.seeds))]
        free = set(range(self._rows))
        requests = []
        for job, choice in places:
            slot = max(sorted(free), key=lambda number: self._gain(number, job.context))
            free.remove(slot)
            requests.append(Request(slot, job.context, job.seeds[choice], job.max_new_tokens))

        def hear(i: int, token: int) -> None:
            job, choice = places[i]
            if job.hear is not None:
                job.hear(choice, token)

        try:
            completions = self._sampler.generate(requests, batch[0].params, hear)
        except BaseException:
            self._held = [()] * self._rows  # the sampler has forgotten its slots
            raise
        for request, completion in zip(requests, completions, strict=True):
            self._held[request.slot] = request.context + completion.token_ids[:-1]
        done = iter(completions)
        for job in batch:
            job.done([next(done) for _ in job.seeds])

    def _gain(self, slot: int, context: tuple[int, ...]) -> int:
        """Tokens that need not be computed again if this slot is taken, less those of another conversation given up."""
        held = self._held[slot]
        return 2 * _common(held, context) - len(held)

    @staticmethod
    def _fail(jobs: Sequence[Job], message: str) -> None:
        for job in jobs:
            job.done(RequestError(message, status=500))


def _common(held: tuple[int, ...], context: tuple[int, ...]) -> int:
    """How many leading ids agree."""
    if context[: len(held)] == held:
        return len(held)
    return next((i for i, (a, b) in enumerate(zip(held, context, strict=False)) if a != b), min(len(held), len(context)))
