"""Losses: one rule a file, policy losses registered by name."""

from ragen.algos.losses.base import LossTerms, PolicyLoss, losses, register_loss
from ragen.algos.losses.ppo_clip import ppo_clip
from ragen.algos.losses.value import explained_variance, value_loss

__all__ = ["LossTerms", "PolicyLoss", "explained_variance", "losses", "ppo_clip", "register_loss", "value_loss"]
