"""Environments that act beside the training loop: in worker processes or threads, with a time limit for each call."""

from ragen.envs.workers.base import InTurn, Workers
from ragen.envs.workers.pool import Pool

__all__ = ["InTurn", "Pool", "Workers"]
