"""Log-probability and entropy of chosen tokens from hidden states, by blocks of bounded size."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ragen.models.shapes import TOKENS, rounded

CHUNK_ELEMENTS = 1 << 19  # float32 logits worked on at a time: few enough for the cache
BLOCK_ELEMENTS = 1 << 26  # logits of one matrix product: 134 MB in bfloat16, 1,344 tokens of a vocabulary of 49,152
LEAST_ROWS = 64  # of a product, however large the vocabulary


class _TokenLogprobs(torch.autograd.Function):
    """Forward keeps a log-normaliser and an entropy a token; backward computes the logits again, block by block.

    Where one block holds all tokens, its product is kept instead.

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
    ) -> tuple[Tensor, Tensor]:
        compute = _Logits(hidden, weight, bias, temperature)
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
        ctx.temperature, ctx.product = temperature, compute.whole
        ctx.set_materialize_grads(False)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, grad_logprobs: Tensor | None, grad_entropies: Tensor | None) -> Any:
        hidden, weight, bias, targets, normalisers, entropies = ctx.saved_tensors
        compute = _Logits(hidden, weight, bias, ctx.temperature, ctx.product)
        if grad_logprobs is None:
            grad_logprobs = torch.zeros_like(normalisers)
        grad_hidden = torch.empty_like(compute.hidden)
        grad_weight = grad_bias = None
        for block, product in compute.blocks():
            for part, rows, logits in compute.chunks(block, product):
                up = None if grad_entropies is None else grad_entropies[part]
                grad = _logit_gradient(logits, targets[part], normalisers[part], entropies[part], grad_logprobs[part], up)
                rows.copy_(grad.mul_(1.0 / ctx.temperature))
            torch.mm(product, weight, out=grad_hidden[block])
            if ctx.needs_input_grad[1]:
                grad_weight = _sum(grad_weight, product.T @ compute.hidden[block])
            if bias is not None and ctx.needs_input_grad[2]:
                grad_bias = _sum(grad_bias, product.sum(0, dtype=torch.float32))
        return grad_hidden.to(hidden.dtype), grad_weight, grad_bias, None, None


def _sum(so_far: Tensor | None, piece: Tensor) -> Tensor:
    """The sum, in float32 as soon as there are two pieces."""
    return piece if so_far is None else so_far.float().add_(piece.float())


class _Logits:
    """Logits at temperature T: one product in the weight's type a block of tokens, then float32 by chunks.

    ``whole`` is the product of all tokens where one block holds them, else None; given again, it is not computed again.
    """

    def __init__(
        self, hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, whole: Tensor | None = None
    ) -> None:
        self.hidden, self.whole = hidden.to(weight.dtype), whole
        self._weight, self._bias, self._scale = weight, bias, 1.0 / temperature
        count, vocabulary = hidden.shape[0], weight.shape[0]
        self._block = max(1, min(count, max(LEAST_ROWS, BLOCK_ELEMENTS // vocabulary // TOKENS * TOKENS)))
        self._chunk = max(1, min(self._block, CHUNK_ELEMENTS // vocabulary))
        self._logits = hidden.new_empty(self._chunk, vocabulary, dtype=torch.float32)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Slices of the tokens with hidden · weightᵀ of each, in a buffer the next block overwrites."""
        count = self.hidden.shape[0]
        if self.whole is not None:
            yield slice(0, count), self.whole
            return
        buffer = self.hidden.new_empty(self._block, self._weight.shape[0])
        for start in range(0, count, self._block):
            block = slice(start, min(start + self._block, count))
            product = buffer[: block.stop - start]
            torch.mm(self.hidden[block], self._weight.T, out=product)
            yield block, product
        if self._block == count:
            self.whole = buffer

    def chunks(self, block: slice, product: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Slices of the tokens of a block, their rows of its product, and their float32 logits in a buffer."""
        for start in range(block.start, block.stop, self._chunk):
            part = slice(start, min(start + self._chunk, block.stop))
            rows = product[start - block.start : part.stop - block.start]
            logits = self._logits[: len(rows)].copy_(rows)
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
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities (N,) of ``targets`` (N,) and entropies (N,), in nats and float32, at temperature T.

    ``hidden`` (N, H), ``weight`` (V, H), ``bias`` (V,) or None. The matrix products run in the weight's type, everything
    after them in float32. Memory beyond inputs and gradients: one block of 2²⁶ logits (but at least 64 rows) in the weight's
    type, kept for the backward pass where it holds all tokens, and a few chunks of 2¹⁹ in float32.
    """
    count = len(targets)
    more = rounded(count, TOKENS) - count
    hidden, targets = functional.pad(hidden, (0, 0, 0, more)), functional.pad(targets, (0, more))
    logprobs, entropies = _TokenLogprobs.apply(hidden, weight, bias, targets, temperature)
    return logprobs[:count], entropies[:count]
