"""Environments: text in, text out. Importing this package registers the built-in presets."""

from ragen.envs import bandit, countdown, frozen_lake, game_2048, gsm8k, sokoban, sql, sudoku, webshop, wiki
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
    "countdown",
    "environment_factory",
    "environments",
    "find_environment",
    "frozen_lake",
    "game_2048",
    "gsm8k",
    "sokoban",
    "sql",
    "sudoku",
    "webshop",
    "wiki",
]
