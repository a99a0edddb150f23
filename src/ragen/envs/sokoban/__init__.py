"""Sokoban: importing it registers the presets ``sokoban``, ``-large``, ``-symbols`` and ``-coords``."""

from ragen.envs.sokoban.env import SokobanEnv, SokobanSettings

__all__ = ["SokobanEnv", "SokobanSettings"]
