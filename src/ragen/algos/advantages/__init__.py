"""Advantage estimators: one rule a file, registered by name."""

from ragen.algos.advantages.base import AdvantageEstimator, advantages, register_advantage
from ragen.algos.advantages.gae import gae
from ragen.algos.advantages.grpo import grpo
from ragen.algos.advantages.none import none

__all__ = ["AdvantageEstimator", "advantages", "gae", "grpo", "none", "register_advantage"]
