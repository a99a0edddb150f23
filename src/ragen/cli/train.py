"""Train an agent from a preset (`ragen presets`) or a YAML file, or go on with a run."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.cli.arguments import OVERRIDES as _ABOUT
from ragen.errors import ConfigError

if TYPE_CHECKING:
    from ragen.config import Config

OVERRIDES: str | None = _ABOUT


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", nargs="?", metavar="PRESET_OR_FILE", help="a preset's name or a YAML file")
    parser.add_argument("--resume", metavar="RUN", help="go on with this run directory from its last checkpoint")
    parser.add_argument("--quiet", action="store_true", help="print only how it ended")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Train; 130 where Ctrl-C ended the run early."""
    if (args.source is None) == (args.resume is None):
        raise ConfigError(
            "say what to train: `ragen train PRESET_OR_FILE` (see `ragen presets`), or `ragen train --resume RUN`"
        )
    from ragen.config import load_config

    resume = None
    if args.resume is not None:
        from ragen.runs.directory import find_run

        resume = find_run(args.resume)
        config = load_config(resume / "config.yaml", overrides)
    else:
        config = _named(load_config(args.source, overrides), args.source)
    from ragen.loops.train import train
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet) as listener:
        result = train(config, listener=listener, resume=resume)
    return 130 if result.stopped == "interrupted" else 0


def _named(config: "Config", source: str) -> "Config":
    """The config with a run name made from the preset's or the file's name, unless it has one."""
    from ragen.runs.directory import default_name

    if config.run.name:
        return config
    name = default_name(Path(source).stem, config.seed)
    return config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
