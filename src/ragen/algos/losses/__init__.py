"""Losses: one rule a file, policy losses registered by name."""

from ragen.algos.losses.base import LossTerms, PolicyLoss, losses, register_loss
from ragen.algos.losses.cispo import cispo
from ragen.algos.losses.dpo import dpo, step_dpo
from ragen.algos.losses.gmpo import gmpo
from ragen.algos.losses.gspo import gspo
from ragen.algos.losses.imitation import imitation_loss, linear_schedule
from ragen.algos.losses.kto import kto
from ragen.algos.losses.pg import pg
from ragen.algos.losses.ppo_clip import ppo_clip
from ragen.algos.losses.sft import sft
from ragen.algos.losses.tis import truncated_ratio
from ragen.algos.losses.value import explained_variance, value_loss

__all__ = [
    "LossTerms",
    "PolicyLoss",
    "cispo",
    "dpo",
    "explained_variance",
    "gmpo",
    "gspo",
    "imitation_loss",
    "kto",
    "linear_schedule",
    "losses",
    "pg",
    "ppo_clip",
    "register_loss",
    "sft",
    "step_dpo",
    "truncated_ratio",
    "value_loss",
]
