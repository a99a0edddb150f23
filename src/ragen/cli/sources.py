"""What was meant by a word that is no preset and no file of settings: said in full, with the command to give instead."""

import shlex
from pathlib import Path

from ragen.errors import ConfigError


def check_source(source: str) -> None:
    """Raise ConfigError for a source of settings that is something else: a study, an environment, a run, a directory."""
    from ragen.config.load import METHODS
    from ragen.studies.schema import shipped

    path, quoted = Path(source), shlex.quote(source)
    begin = "bandit-starpo-s-grpo-tiny"
    if ".py" in source:
        raise ConfigError(
            f"'{source}' is Python, not settings: an environment of your own is trained on as "
            f"`ragen train {begin} --env FILE.py:Class`"
        )
    try:
        folder = bool(source) and path.is_dir()
    except (OSError, ValueError):  # no name of a file, or none that may be looked at: what reads it says so
        return
    if folder:
        if (path / "config.yaml").is_file():
            raise ConfigError(
                f"'{source}' is a run: go on with it (`ragen train --resume {quoted}`), or begin another with its settings "
                f"(`ragen train {shlex.quote(str(path / 'config.yaml'))} --run.name OTHER`)"
            )
        raise ConfigError(f"'{source}' is a directory: give a preset's name (`ragen presets`) or a YAML file")
    if path.exists() or "-starpo" in source:
        return
    if source in shipped():
        raise ConfigError(f"'{source}' is a study, a grid of runs: `ragen study run {source}`")
    from ragen.envs import environments

    if source in environments.names():
        raise ConfigError(
            f"'{source}' is an environment: its presets are {', '.join(f'{source}-{method}' for method in METHODS)}, "
            "also with -small or -tiny"
        )
    there = [file for file in (path.with_name(f"{path.name}{end}") for end in (".yaml", ".yml")) if file.is_file()]
    if there and path.name:
        raise ConfigError(f"there is no preset '{source}': did you mean the file '{there[0]}'?")
