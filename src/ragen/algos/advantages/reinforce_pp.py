"""Returns-to-go, standardised over the whole batch (REINFORCE++)."""

from torch import Tensor

from ragen.algos.advantages.base import KL_IN_REWARD, register_advantage
from ragen.algos.credit import Credit
from ragen.algos.recursion import backward
from ragen.algos.reduce import trajectory_index, whiten


@register_advantage("reinforce_pp", KL_IN_REWARD)
def reinforce_pp(rewards: Tensor, mask: Tensor, turn_ids: Tensor, trajectory: Tensor, *, gamma: float = 1.0) -> Credit:
    """A_j = (G_j − mean G) / (std G + 1e-8),  G_j = Σ_{l≥j} γ^{l−j} r_l,  mean and std over the batch's sampled tokens.

    j counts the sampled tokens of one trajectory in turn order, across turns and segments. With one reward at the end and
    γ = 1, G_j is the trajectory's return. No group is needed; the statistics have Bessel's correction, and a batch in which
    every G_j is equal gives exactly 0. Deviation: the source has a single turn; here G_j of a turn contains later turns.

    Shapes: ``rewards``, ``mask``, ``turn_ids`` (R, T); ``trajectory`` (R,).
    Source: REINFORCE++ (arXiv 2501.03262), whose r contains the KL term of each token (``loss.kl_in: reward``).
    """
    cpu_mask = mask.cpu()
    index, _ = trajectory_index(trajectory.cpu())
    returns, _ = backward(rewards.cpu(), None, cpu_mask, turn_ids.cpu(), index, gamma=gamma, decay=gamma)
    return Credit(whiten(returns, cpu_mask).to(rewards.device))
