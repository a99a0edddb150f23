"""How far recorded tokens are from the policy that learns from them."""

import torch
from torch import Tensor


def ratio_summary(log_ratios: Tensor) -> dict[str, float]:
    """Of ρ = exp(log_ratios), log_ratios = log π − log π_behaviour (N,): mean, max and ess; nothing where N is 0.

    ess = (Σρ)² / (N Σρ²) in (0, 1], the effective sample size as a share of N: 1 where all ρ are equal. Source: A. Kong,
    "A note on importance sampling using standardized weights" (1992). Taken over tokens, not over whole trajectories.
    """
    if not log_ratios.numel():
        return {}
    ratios = log_ratios.to(torch.float64).exp()
    ess = ratios.sum().square() / (ratios.numel() * ratios.square().sum())
    return {"mean": float(ratios.mean()), "max": float(ratios.max()), "ess": float(ess)}
