"""How much a reasoning depends on its prompt, from log-likelihoods of every reasoning under every prompt.

Of the Echo Trap's replies one fits every prompt: entropy within a prompt may still be high then, while nothing in the reply
depends on what was asked. Shapes: N reasonings, P prompts.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray


def mutual_information(loglikelihood: ArrayLike, own: ArrayLike) -> float:
    """1/N Σ_n [ log π(r_n | x_{own n}) − log 1/P Σ_p π(r_n | x_p) ] (nats a reasoning): matched minus marginal.

    ``loglikelihood`` (N, P) holds log π(r_n | x_p), ``own`` (N,) the prompt that r_n was sampled from. An estimate of
    I(X; R) for prompts drawn evenly from the P: 0 where the reasoning tells nothing about the prompt; log P at most, where
    it tells which one it was; below 0 where others' prompts make a reasoning likelier than its own. NaN without a reasoning.
    """
    table, index = _checked(loglikelihood, own)
    if not len(table):
        return math.nan
    marginal = np.logaddexp.reduce(table, axis=1) - math.log(table.shape[1])
    return float((table[np.arange(len(table)), index] - marginal).mean())


def retrieval_accuracy(loglikelihood: ArrayLike, own: ArrayLike) -> float:
    """Share of reasonings that are likelier under their own prompt than under any other; chance is 1 / P.

    Arguments as in ``mutual_information``. k prompts that share the largest likelihood count 1/k each. NaN without a
    reasoning.
    """
    table, index = _checked(loglikelihood, own)
    if not len(table):
        return math.nan
    best = table == table.max(axis=1, keepdims=True)
    return float((best[np.arange(len(table)), index] / best.sum(axis=1)).mean())


def _checked(loglikelihood: ArrayLike, own: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    table, index = np.asarray(loglikelihood, dtype=np.float64), np.asarray(own, dtype=np.int64)
    if table.ndim != 2 or table.shape[1] < 1 or index.shape != table.shape[:1]:
        raise ValueError(f"log-likelihoods must be (N, P) and own (N,), got {table.shape} and {index.shape}")
    return table, index
