"""Rewards beside the task's, in training only: process rewards on the reasoning (one rule a file), the overlong penalty."""

from ragen.rewards.base import ProcessReward, Reasoning, process_rewards, register_process_reward
from ragen.rewards.overlong import overlong_penalty
from ragen.rewards.plan_agreement import plan_agreement
from ragen.rewards.state_match import state_match

__all__ = [
    "ProcessReward",
    "Reasoning",
    "overlong_penalty",
    "plan_agreement",
    "process_rewards",
    "register_process_reward",
    "state_match",
]
