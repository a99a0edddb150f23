"""Environments: text in, text out. Importing this package registers the built-in presets."""

from ragen.envs import bandit, frozen_lake, sokoban, webshop
from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.envs.check import check_environment
from ragen.envs.facts import Fact
from ragen.envs.registry import EnvPreset, environment_factory, environments, find_environment

__all__ = [
    "EnvPreset",
    "EnvSettings",
    "Environment",
    "Fact",
    "Observation",
    "Step",
    "bandit",
    "check_environment",
    "environment_factory",
    "environments",
    "find_environment",
    "frozen_lake",
    "sokoban",
    "webshop",
]
