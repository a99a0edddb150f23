"""Typed settings, presets, YAML and command-line overrides."""

from ragen.config.load import load_config, preset_names
from ragen.config.schema import Config

__all__ = ["Config", "load_config", "preset_names"]
