"""Advantage estimators: one rule a file, registered by name."""

from ragen.algos.advantages.base import AdvantageEstimator, advantages, register_advantage
from ragen.algos.advantages.gae import gae
from ragen.algos.advantages.grpo import grpo

__all__ = ["AdvantageEstimator", "advantages", "gae", "grpo", "register_advantage"]
