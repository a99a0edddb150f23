"""Countdown: importing it registers the presets ``countdown``, ``-3`` and ``-5``."""

from ragen.envs.countdown.env import Countdown, CountdownSettings

__all__ = ["Countdown", "CountdownSettings"]
