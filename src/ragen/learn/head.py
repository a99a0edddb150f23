"""Log-probability and entropy of chosen tokens from hidden states; no (tokens, V) tensor is kept for the backward pass."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ragen.models.shapes import TOKENS, rounded

CHUNK_ELEMENTS = 1 << 19  # float32 logits worked on at a time: few enough for the cache
BLOCK_ELEMENTS = 1 << 24  # logits of one matrix product: large enough to be worth reading the weight for


class _TokenLogprobs(torch.autograd.Function):
    """Forward keeps one log-normaliser and one entropy a token; backward computes the logits again, block by block.

    With z = (hidden · weightᵀ + bias) / T and p = softmax(z):
        logp = z_target − logsumexp(z),   H = −Σ_v p_v log p_v
        ∂logp/∂z_v = 1[v = target] − p_v,   ∂H/∂z_v = −p_v (log p_v + H)
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        compute = _Logits(hidden, weight, bias, temperature, dtype)
        logprobs = torch.empty(hidden.shape[0], dtype=torch.float32, device=hidden.device)
        entropies, normalisers = torch.empty_like(logprobs), torch.empty_like(logprobs)
        scratch = torch.empty(0, dtype=torch.float32, device=hidden.device)
        for block, product in compute.blocks():
            for part, _, logits in compute.chunks(block, product):
                top = logits.amax(-1)
                logits.sub_(top[:, None])
                scratch.resize_(logits.shape)
                torch.exp(logits, out=scratch)
                total = scratch.sum(-1)
                log_total = total.log()
                normalisers[part] = top + log_total
                logprobs[part] = logits.gather(1, targets[part, None])[:, 0] - log_total
                # exp underflows to 0 where a logit is −inf; 0 · −inf counts as 0
                entropies[part] = log_total - torch.linalg.vecdot(scratch, logits.clamp_(min=-1e30)) / total
        ctx.save_for_backward(hidden, weight, bias, targets, normalisers, entropies)
        ctx.temperature, ctx.dtype = temperature, dtype
        ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, grad_logprobs: Tensor | None, grad_entropies: Tensor | None) -> Any:
        hidden, weight, bias, targets, normalisers, entropies = ctx.saved_tensors
        compute = _Logits(hidden, weight, bias, ctx.temperature, ctx.dtype)
        if grad_logprobs is None:
            grad_logprobs = torch.zeros_like(normalisers)
        grad_hidden = torch.empty_like(compute.hidden)
        grad_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias) if bias is not None and ctx.needs_input_grad[2] else None
        for block, product in compute.blocks():
            for part, rows, logits in compute.chunks(block, product):
                up = None if grad_entropies is None else grad_entropies[part]
                grad = _logit_gradient(logits, targets[part], normalisers[part], entropies[part], grad_logprobs[part], up)
                rows.copy_(grad.mul_(1.0 / ctx.temperature))
            torch.mm(product, compute.weight, out=grad_hidden[block])
            if grad_weight is not None:
                grad_weight += product.T @ compute.hidden[block]
            if grad_bias is not None:
                grad_bias += product.sum(0, dtype=torch.float32)
        return grad_hidden.to(hidden.dtype), grad_weight, grad_bias, None, None, None


class _Logits:
    """Logits at temperature T: one product in ``dtype`` a block of tokens, then float32 by chunks; reuses its buffers."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, dtype: torch.dtype) -> None:
        self.hidden, self.weight = hidden.to(dtype), weight.to(dtype)
        self._bias, self._scale = bias, 1.0 / temperature
        count, vocabulary = hidden.shape[0], weight.shape[0]
        self._block = max(1, min(count, max(TOKENS, BLOCK_ELEMENTS // vocabulary // TOKENS * TOKENS)))
        self._chunk = max(1, min(self._block, CHUNK_ELEMENTS // vocabulary))
        self._product = self.hidden.new_empty(self._block, vocabulary)
        self._logits = (
            None if dtype is torch.float32 else self.hidden.new_empty(self._chunk, vocabulary, dtype=torch.float32)
        )

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the tokens with hidden · weightᵀ of each, in a buffer the next block overwrites."""
        for start in range(0, self.hidden.shape[0], self._block):
            block = slice(start, min(start + self._block, self.hidden.shape[0]))
            product = self._product[: block.stop - start]
            torch.mm(self.hidden[block], self.weight.T, out=product)
            yield block, product

    def chunks(self, block: slice, product: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Slices of the tokens of a block, their rows of its product, and their float32 logits (which may share memory)."""
        for start in range(block.start, block.stop, self._chunk):
            part = slice(start, min(start + self._chunk, block.stop))
            rows = product[start - block.start : part.stop - block.start]
            logits = rows if self._logits is None else self._logits[: len(rows)].copy_(rows)
            if self._bias is not None:
                logits += self._bias.float()
            if self._scale != 1.0:
                logits *= self._scale
            yield part, rows, logits


def _logit_gradient(
    logits: Tensor,
    targets: Tensor,
    normalisers: Tensor,
    entropies: Tensor,
    grad_logprobs: Tensor,
    grad_entropies: Tensor | None,
) -> Tensor:
    """∂L/∂z of one chunk, written over ``logits``."""
    logits -= normalisers[:, None]
    if grad_entropies is None:
        grad = logits.exp_().mul_(-grad_logprobs[:, None])
    else:
        factor = (logits.clamp(min=-1e30) + entropies[:, None]).mul_(grad_entropies[:, None]).add_(grad_logprobs[:, None])
        grad = logits.exp_().mul_(factor.neg_())
    return grad.scatter_add_(1, targets[:, None], grad_logprobs[:, None])


def token_logprobs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, temperature: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Log-probabilities (N,) of ``targets`` (N,) and entropies (N,), in nats and float32, at temperature T.

    ``hidden`` (N, H), ``weight`` (V, H), ``bias`` (V,) or None. The matrix products run in ``dtype``, everything after them
    in float32. Memory beyond inputs and gradients: one block of 2²⁴ logits (but at least 64 rows) in ``dtype`` and a few
    chunks of 2¹⁹ in float32.
    """
    count = len(targets)
    more = rounded(count, TOKENS) - count
    hidden, targets = functional.pad(hidden, (0, 0, 0, more)), functional.pad(targets, (0, more))
    logprobs, entropies = _TokenLogprobs.apply(hidden, weight, bias, targets, temperature, dtype)
    return logprobs[:count], entropies[:count]
