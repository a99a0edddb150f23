"""Grade-school word problems with a calculator (GSM8K)."""

from ragen.envs.gsm8k.env import Gsm8k, Gsm8kSettings

__all__ = ["Gsm8k", "Gsm8kSettings"]
