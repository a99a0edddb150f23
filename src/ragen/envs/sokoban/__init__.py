"""Sokoban: importing it registers the presets ``sokoban``, ``-large``, ``-symbols``, ``-coords`` and ``-offset``."""

from ragen.envs.sokoban.env import SokobanEnv, SokobanSettings

__all__ = ["SokobanEnv", "SokobanSettings"]
