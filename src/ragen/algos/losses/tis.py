"""Truncated importance sampling: what a token counts where sampler and learner disagree."""

import torch
from torch import Tensor


def truncated_ratio(old_logprobs: Tensor, behaviour_logprobs: Tensor, mask: Tensor, cap: float) -> Tensor:
    """f = min(π_old / π_sampler, cap) of each token, without gradient; 1 off ``mask``. It multiplies the policy loss's
    weights.

    π_old is the learner before the update, π_sampler what the token was drawn from: with f the sum over sampled tokens
    estimates the learner's own expectation, biased only where the cap binds. All tensors have one shape.
    Source: Yao et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training" (2025), where a token's
    ratio is truncated as here; IMPALA's ρ̄ (arXiv 1802.01561) is the same idea.
    """
    difference = torch.where(mask, old_logprobs, 0) - torch.where(mask, behaviour_logprobs, 0)
    return difference.detach().exp().clamp(max=cap)
