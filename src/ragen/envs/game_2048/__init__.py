"""2048: importing it registers the presets ``2048`` and ``2048-64``."""

from ragen.envs.game_2048.env import Game2048, Game2048Settings

__all__ = ["Game2048", "Game2048Settings"]
