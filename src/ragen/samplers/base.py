"""The sampler interface: token ids in, sampled token ids with their log-probabilities out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ragen.episode import Completion

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample. ``temperature`` 0 means greedy; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 mean no truncation."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_strings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """One reply to sample.

    ``context`` is the whole segment so far; a sampler keeps what it computed for ``slot`` (one episode's place) and pays
    only for ids it has not seen, after checking that they extend what it holds. ``seed`` fixes this reply's draws:
    they do not depend on the other rows of the batch.
    """

    slot: int
    context: tuple[int, ...]
    seed: int
    max_new_tokens: int


class TokenSampler(Protocol):
    """A sampler that can train: it returns exact ids, log-probabilities and entropies."""

    version: int

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        """Sample one reply a request, in the order of the requests."""
        ...

    def load(self, weights: "Mapping[str, torch.Tensor]", version: int) -> None:
        """Use these weights from now on; everything cached under older ones is dropped."""
        ...

    def release(self) -> None:
        """Forget all slots (the end of a collection)."""
        ...
