"""The learner: batches, the policy with its critic and adapters, the update, supervised warm-up, checkpoints."""

from ragen.learn.batch import Batch, collate, collate_segments
from ragen.learn.checkpoint import load_state, save_state
from ragen.learn.lora import Lora
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.reference import Reference
from ragen.learn.stats import UpdateStats
from ragen.learn.supervised import supervised_step
from ragen.learn.update import update

__all__ = [
    "Batch",
    "Lora",
    "LossSettings",
    "Optimizer",
    "Policy",
    "Reference",
    "UpdateStats",
    "collate",
    "collate_segments",
    "load_state",
    "save_state",
    "supervised_step",
    "update",
]
