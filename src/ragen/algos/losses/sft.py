"""Imitation of one's own good trajectories."""

import torch
from torch import Tensor

from ragen.algos.losses.base import LossTerms, register_loss
from ragen.algos.reduce import weighted_sum


@register_loss("sft")
def sft(logprobs: Tensor, weights: Tensor, chosen: Tensor) -> LossTerms:
    """loss = −Σ w · log π over the tokens that are ``chosen``: those of trajectories with a return above a threshold.

    All tensors (R, T) or (N,); ``weights`` are those of the chosen tokens alone, so the loss is their mean. Tokens of
    weight 0 are never looked at.
    Source: rejection sampling fine-tuning (RFT, arXiv 2308.01825); on an agent's trajectories, e.g. ReST (arXiv 2312.10003).
    """
    used = (weights != 0) & chosen
    return LossTerms(-weighted_sum(torch.where(used, logprobs, 0), weights))
