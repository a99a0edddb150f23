"""Log-probability and entropy of chosen tokens from hidden states; no (tokens, V) tensor is kept for the backward pass."""

from typing import Any

import torch
from torch import Tensor

CHUNK_ELEMENTS = 1 << 21  # float32 logits of one chunk: small enough for the cache
GRADIENT_ELEMENTS = 1 << 25  # logit gradients gathered before one product with the hidden states


class _TokenLogprobs(torch.autograd.Function):
    """Forward keeps one log-normaliser and one entropy a token; backward computes the logits again, chunk by chunk.

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
        count = hidden.shape[0]
        logprobs = torch.empty(count, dtype=torch.float32, device=hidden.device)
        entropies, normalisers = torch.empty_like(logprobs), torch.empty_like(logprobs)
        scratch = torch.empty(0, dtype=torch.float32, device=hidden.device)
        for start in range(0, count, compute.rows):
            part = slice(start, min(start + compute.rows, count))
            logits = compute(part)
            top = logits.amax(-1)
            logits -= top[:, None]
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
        step = max(compute.rows, GRADIENT_ELEMENTS // weight.shape[0])
        for first in range(0, hidden.shape[0], step):
            block = slice(first, min(first + step, hidden.shape[0]))
            grads = compute.hidden.new_empty(block.stop - first, weight.shape[0])
            for start in range(first, block.stop, compute.rows):
                part = slice(start, min(start + compute.rows, block.stop))
                grad = _logit_gradient(
                    compute(part),
                    targets[part],
                    normalisers[part],
                    entropies[part],
                    grad_logprobs[part],
                    grad_entropies,
                    part,
                )
                grads[part.start - first : part.stop - first] = grad.mul_(1.0 / ctx.temperature)
            torch.mm(grads, compute.weight, out=grad_hidden[block])
            if grad_weight is not None:
                grad_weight += grads.T @ compute.hidden[block]
            if grad_bias is not None:
                grad_bias += grads.sum(0, dtype=torch.float32)
        return grad_hidden.to(hidden.dtype), grad_weight, grad_bias, None, None, None


class _Logits:
    """Float32 logits at temperature T of a slice of tokens; the product itself runs in ``dtype``. Reuses its buffers."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, dtype: torch.dtype) -> None:
        self.hidden, self.weight = hidden.to(dtype), weight.to(dtype)
        self.bias, self.scale = bias, 1.0 / temperature
        self.rows = max(1, min(hidden.shape[0], CHUNK_ELEMENTS // weight.shape[0]))
        self._product = self.hidden.new_empty(self.rows, weight.shape[0])
        self._logits = self._product if dtype is torch.float32 else self._product.float()

    def __call__(self, part: slice) -> Tensor:
        count = part.stop - part.start
        product, logits = self._product[:count], self._logits[:count]
        torch.mm(self.hidden[part], self.weight.T, out=product)
        if logits.data_ptr() != product.data_ptr():
            logits.copy_(product)
        if self.bias is not None:
            logits += self.bias.float()
        return logits if self.scale == 1.0 else logits.mul_(self.scale)


def _logit_gradient(
    logits: Tensor,
    targets: Tensor,
    normalisers: Tensor,
    entropies: Tensor,
    grad_logprobs: Tensor,
    grad_entropies: Tensor | None,
    part: slice,
) -> Tensor:
    """∂L/∂z of one chunk, written over ``logits``."""
    logits -= normalisers[:, None]
    if grad_entropies is None:
        grad = logits.exp_().mul_(-grad_logprobs[:, None])
    else:
        weight = grad_entropies[part, None]
        factor = (logits.clamp(min=-1e30) + entropies[:, None]).mul_(weight).add_(grad_logprobs[:, None])
        grad = logits.exp_().mul_(factor.neg_())
    return grad.scatter_add_(1, targets[:, None], grad_logprobs[:, None])


def token_logprobs(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, *, temperature: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Log-probabilities (N,) of ``targets`` (N,) and entropies (N,), in nats and float32, at temperature T.

    ``hidden`` (N, H), ``weight`` (V, H), ``bias`` (V,) or None. The matrix products run in ``dtype``, everything after them
    in float32. Memory beyond inputs and gradients: two chunks of logits, and at most 2²⁵ logit gradients in backward.
    """
    logprobs, entropies = _TokenLogprobs.apply(hidden, weight, bias, targets, temperature, dtype)
    return logprobs, entropies
