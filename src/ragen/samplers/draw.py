"""Drawing tokens from logits: temperature, truncation, inverse CDF with one uniform number a row.

Multinomial sampling over 128 x 49,152 entries costs more than a small model's forward pass; an inverse CDF in two levels
(sums of blocks, then inside one block) costs a few passes over memory, in blocks of rows that stay in the cache.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ragen.samplers.base import SamplingParams

ROWS = 8  # rows handled together: two float32 buffers of 8 x 49,152 entries are 3 MB
BLOCK = 256
FLOOR = -1e4  # exp of anything below is 0 in float32; finite, so that 0 · z is 0


@dataclass(frozen=True, slots=True)
class Draw:
    """Ids (n,) int64, their log-probabilities and the entropies (n,) float32; ``bad`` lists rows without finite logits."""

    ids: Tensor
    logprobs: Tensor
    entropies: Tensor
    bad: tuple[int, ...]


class Drawer:
    """Draws from rows of logits with buffers that are kept from call to call."""

    def __init__(self) -> None:
        self._buffers: tuple[Tensor, Tensor] | None = None

    def __call__(self, logits: Tensor, uniforms: Tensor, params: SamplingParams) -> Draw:
        """One token a row from ``logits`` (n, V) with ``uniforms`` (n,) in [0, 1).

        The token is the first index at which the cumulative probability (float32, in order of the ids, after temperature and
        truncation) exceeds the uniform number, so its probability is never 0. Log-probabilities are of the distribution
        drawn from (renormalised after truncation); entropies are of the whole distribution at the temperature. At
        temperature 0 the token is the arg max (the lowest id on a tie), its log-probability is 0 (all mass is on it) and the
        entropy is that of temperature 1. A row with NaN, +inf or no finite logit is ``bad`` and its token means nothing.
        """
        n, vocabulary = logits.shape
        ids = torch.empty(n, dtype=torch.int64, device=logits.device)
        logprobs = torch.empty(n, dtype=torch.float32, device=logits.device)
        entropies = torch.empty_like(logprobs)
        peaks = torch.empty_like(logprobs)
        z_buffer, e_buffer = self._scratch(vocabulary, logits.device)
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            z, e = z_buffer[: rows.stop - start], e_buffer[: rows.stop - start]
            z[:, :vocabulary].copy_(logits[rows])
            z[:, vocabulary:] = -torch.inf
            if params.temperature not in (0, 1):
                z /= params.temperature
            peak = z.amax(-1, keepdim=True)
            peaks[rows] = peak[:, 0]
            broken = ~peak.isfinite()
            if broken.any():
                z.masked_fill_(broken, 0.0)
                peak = peak.masked_fill(broken, 0.0)
            z.sub_(peak).clamp_(min=FLOOR)
            torch.exp(z, out=e)
            total = e.sum(-1)
            entropies[rows] = total.log() - torch.linalg.vecdot(e, z) / total
            if params.temperature == 0:
                ids[rows], logprobs[rows] = z.argmax(-1), 0.0
                continue
            if _truncate(e, total, params):
                total = e.sum(-1)
            ids[rows] = _invert(e, uniforms[rows])
            logprobs[rows] = z.gather(1, ids[rows, None])[:, 0] - total.log()
        return Draw(ids, logprobs, entropies, tuple((~peaks.isfinite()).nonzero()[:, 0].tolist()))

    def _scratch(self, vocabulary: int, device: torch.device) -> tuple[Tensor, Tensor]:
        width = -(-vocabulary // BLOCK) * BLOCK
        if self._buffers is None or self._buffers[0].shape[1] != width or self._buffers[0].device != device:
            self._buffers = (torch.empty(ROWS, width, device=device), torch.empty(ROWS, width, device=device))
        return self._buffers


def _truncate(e: Tensor, total: Tensor, params: SamplingParams) -> bool:
    """Set the unnormalised probabilities (n, V), whose largest is 1, to 0 outside top-k, then top-p, then min-p."""
    before = (params.top_k > 0, params.top_p < 1, params.min_p > 0)
    if params.top_k > 0 and params.top_k < e.shape[1]:
        least = e.topk(params.top_k, dim=-1).values[:, -1:]
        e.masked_fill_(e < least, 0.0)
        total = e.sum(-1)
    if params.top_p < 1:
        ordered, index = e.sort(dim=-1, descending=True)
        above = ordered.cumsum(-1) - ordered  # mass before each token; the first is always kept
        e.scatter_(1, index, ordered.masked_fill_(above >= params.top_p * total[:, None], 0.0))
    if params.min_p > 0:
        e.masked_fill_(e < params.min_p, 0.0)
    return any(before)


def _invert(e: Tensor, uniforms: Tensor) -> Tensor:
    """The first index (n,) at which the running sum of ``e`` (n, V) exceeds uniform · total."""
    n = e.shape[0]
    blocks = e.view(n, -1, BLOCK)
    sums = blocks.sum(-1).cumsum(-1)
    target = _below(uniforms.to(sums.dtype)[:, None] * sums[:, -1:], sums[:, -1:])
    block = torch.searchsorted(sums, target, right=True)
    before = sums.gather(1, (block - 1).clamp_(min=0)).masked_fill_(block == 0, 0.0)
    inner = blocks[torch.arange(n, device=e.device), block[:, 0]].cumsum(-1)
    rest = _below(target - before, inner[:, -1:])
    return (block * BLOCK + torch.searchsorted(inner, rest, right=True))[:, 0]


def _below(value: Tensor, bound: Tensor) -> Tensor:
    """``value``, at most the largest number under ``bound``: a search for more than it then always succeeds."""
    return torch.minimum(value, torch.nextafter(bound, torch.zeros_like(bound)))


class StopFinder:
    """Tells whether a reply's text holds a stop string, looking only when its newest token could finish one."""

    def __init__(self, tokenizer: object, stops: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._could_finish: dict[int, bool] = {}

    def found(self, ids: Sequence[int]) -> bool:
        """Whether the text of ``ids`` holds a stop string that its last id finished."""
        newest = int(ids[-1])
        if newest not in self._could_finish:
            piece = self._decode([newest, newest])  # twice: some tokenizers drop the blank that a text begins with
            # a token that is part of a character decodes to U+FFFD: it may finish anything
            self._could_finish[newest] = "\ufffd" in piece or any(stop[-1] in piece for stop in self._stops)
        if not self._could_finish[newest]:
            return False
        text = self._decode(ids)
        return any(stop in text for stop in self._stops)

    def _decode(self, ids: Sequence[int]) -> str:
        return decode(self._tokenizer, ids)


def decode(tokenizer: object, ids: Sequence[int]) -> str:
    """The text of sampled ids, without special tokens and exactly as the tokens spell it."""
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))  # type: ignore[attr-defined]
