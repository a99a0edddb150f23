"""REINFORCE with a running mean of earlier returns as its baseline."""

from torch import Tensor

from ragen.algos.advantages.base import KL_IN_REWARD, register_advantage
from ragen.algos.credit import Credit
from ragen.algos.trajectories import Episodes


@register_advantage("reinforce", KL_IN_REWARD)
def reinforce(rewards: Tensor, mask: Tensor, trajectory: Tensor, baseline: Tensor) -> Credit:
    """A_{i,j} = R(τ_i) − b, the same for every sampled token of τ_i.

    b, ``baseline`` (), is the mean return of *earlier* steps (``running_mean``; 0 before there is one), so it does not
    depend on the trajectories it is subtracted from, and the policy gradient is unbiased. It needs no group and no critic.

    Shapes: ``rewards``, ``mask`` (R, T); ``trajectory`` (R,); ``baseline`` a single number.
    Source: Williams, "Simple statistical gradient-following algorithms" (1992), reinforcement comparison.
    """
    episodes = Episodes.of(rewards, mask, trajectory)
    return episodes.credit(episodes.returns - baseline.cpu(), rewards.device)


def running_mean(
    total: float, weight: float, rewards: Tensor, mask: Tensor, trajectory: Tensor, *, decay: float
) -> tuple[float, float]:
    """Take a step's n returns into a mean: (S, W) ← (decay · S + Σ_i R(τ_i), decay · W + n); the mean is S / W.

    ``decay`` 1 weighs all trajectories of all steps alike, 0 keeps the last step only. Trajectories without a sampled token
    do not count. Shapes: ``rewards``, ``mask`` (R, T); ``trajectory`` (R,).
    """
    episodes = Episodes.of(rewards, mask, trajectory)
    returns = episodes.returns[episodes.counted]
    return decay * total + float(returns.sum()), decay * weight + len(returns)
