"""A sampler whose replies are written beforehand: for tests and for playing demonstrations."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ragen.episode import Completion, StopReason
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.draw import StopFinder, decode


class ScriptedSampler:
    """Gives texts as replies, encoded without special tokens and followed by the end-of-turn id.

    ``replies`` is a function of the request, or texts handed out one a request in the order of the requests, from the
    start again when they are spent. Every token gets the same log-probability and entropy. ``requests`` lists what was
    asked, ``version`` the last version given to ``load``.
    """

    def __init__(
        self,
        tokenizer: Any,
        replies: Callable[[Request], str] | Sequence[str],
        end_id: int,
        *,
        logprob: float = -0.5,
        entropy: float = 0.5,
    ) -> None:
        if not callable(replies) and not replies:
            raise ValueError("a scripted sampler needs at least one reply")
        self.version = 0
        self.requests: list[Request] = []
        self._tokenizer = tokenizer
        self._replies = replies
        self._end_id = end_id
        self._logprob, self._entropy = logprob, entropy

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """One scripted reply a request, cut at ``max_new_tokens`` or after a stop string."""
        finder = StopFinder(self._tokenizer, params.stop_strings) if params.stop_strings else None
        return [self._reply(request, finder) for request in requests]

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Note the version; there are no weights to use."""
        del weights
        self.version = version

    def release(self) -> None:
        """Nothing is held for a slot."""

    def _reply(self, request: Request, finder: StopFinder | None) -> Completion:
        text = self._replies(request) if callable(self._replies) else self._replies[len(self.requests) % len(self._replies)]
        self.requests.append(request)
        # as text, even where it spells a control token
        ids = [*self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True), self._end_id]
        stop = StopReason.END
        cut = next((n for n in range(1, len(ids)) if finder is not None and finder.found(ids[:n])), None)
        if cut is not None and cut <= request.max_new_tokens:
            ids, stop = ids[:cut], StopReason.STOP_STRING
        elif len(ids) > request.max_new_tokens:
            ids, stop = ids[: request.max_new_tokens], StopReason.LENGTH
        count = len(ids)
        return Completion(tuple(ids), (self._logprob,) * count, (self._entropy,) * count, decode(self._tokenizer, ids), stop)
