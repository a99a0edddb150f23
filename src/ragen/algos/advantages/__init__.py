"""Advantage estimators: one rule a file, registered by name."""

from ragen.algos.advantages.base import KL_IN_REWARD, AdvantageEstimator, advantages, register_advantage
from ragen.algos.advantages.bi_level_gae import bi_level_gae
from ragen.algos.advantages.dr_grpo import dr_grpo
from ragen.algos.advantages.gae import gae
from ragen.algos.advantages.gigpo import gigpo
from ragen.algos.advantages.grpo import grpo
from ragen.algos.advantages.none import none
from ragen.algos.advantages.pass_at_k import pass_at_k
from ragen.algos.advantages.reinforce import reinforce, running_mean
from ragen.algos.advantages.reinforce_pp import reinforce_pp
from ragen.algos.advantages.reinforce_pp_baseline import reinforce_pp_baseline
from ragen.algos.advantages.rloo import rloo
from ragen.algos.advantages.turn_grpo import turn_grpo
from ragen.algos.advantages.vapo import vapo

__all__ = [
    "KL_IN_REWARD",
    "AdvantageEstimator",
    "advantages",
    "bi_level_gae",
    "dr_grpo",
    "gae",
    "gigpo",
    "grpo",
    "none",
    "pass_at_k",
    "register_advantage",
    "reinforce",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
    "running_mean",
    "turn_grpo",
    "vapo",
]
