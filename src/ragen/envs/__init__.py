"""Environments: text in, text out. Importing this package registers the built-in presets."""

from ragen.envs import bandit, frozen_lake, gsm8k, sokoban, sql, webshop, wiki
from ragen.envs.base import Environment, EnvSettings, Observation, Step
from ragen.envs.check import check_environment
from ragen.envs.facts import Fact
from ragen.envs.registry import EnvPreset, environment_factory, environments, find_environment
from ragen.envs.tool_environment import ToolEnvironment, ToolSettings

__all__ = [
    "EnvPreset",
    "EnvSettings",
    "Environment",
    "Fact",
    "Observation",
    "Step",
    "ToolEnvironment",
    "ToolSettings",
    "bandit",
    "check_environment",
    "environment_factory",
    "environments",
    "find_environment",
    "frozen_lake",
    "gsm8k",
    "sokoban",
    "sql",
    "webshop",
    "wiki",
]
