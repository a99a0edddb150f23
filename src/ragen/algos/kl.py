"""Estimates of the divergence from a reference policy, a value for each token."""

from typing import Literal

import torch
from torch import Tensor

KLEstimator = Literal["k1", "k2", "k3"]
_MAX_LOG_RATIO = 20.0
_SERIES_BELOW = 1e-2


def kl_estimate(logprobs: Tensor, ref_logprobs: Tensor, estimator: KLEstimator, mask: Tensor | None = None) -> Tensor:
    """KL(π ‖ π_ref) at tokens sampled from π, same shape as ``logprobs``, in nats; with d = log π − log π_ref

    - k1 = d: unbiased, can be negative. As a *loss* its expected gradient is 0: a reward term only (ValueError elsewhere
      is the caller's: the config refuses it)
    - k2 = ½ d²: estimates ½ E[d²], not the KL; as a loss its gradient is that of the KL in expectation
    - k3 = e^{−d} − 1 + d: unbiased and ≥ 0

    Off ``mask`` the result is 0 and no gradient passes, whatever stands there. k3 is a Taylor series for |d| < 0.01 (the
    direct form cancels in float32), and its e^{−d} stops growing at d = −20.
    Source: J. Schulman, "Approximating KL divergence" (2020).
    """
    difference = logprobs - ref_logprobs
    if mask is not None:
        difference = torch.where(mask, logprobs, 0) - torch.where(mask, ref_logprobs, 0)
    if estimator == "k1":
        return difference
    if estimator == "k2":
        return 0.5 * difference.square()
    if estimator != "k3":
        raise ValueError(f"unknown KL estimator '{estimator}': use k1, k2 or k3")
    small = difference.abs() < _SERIES_BELOW
    near = torch.where(small, difference, 0)
    series = near.square() * (0.5 - near / 6 + near.square() / 24)
    far = torch.where(small, 0, difference)
    return torch.where(small, series, torch.expm1((-far).clamp(max=_MAX_LOG_RATIO)) + far)
