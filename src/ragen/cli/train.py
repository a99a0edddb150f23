"""Train an agent from a preset (`ragen presets`) or a YAML file, or go on with a run."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.cli.arguments import OVERRIDES as _ABOUT
from ragen.cli.sources import check_source
from ragen.errors import ConfigError

OVERRIDES: str | None = _ABOUT


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", nargs="?", metavar="PRESET_OR_FILE", help="a preset's name or a YAML file")
    parser.add_argument("--resume", metavar="RUN", help="go on with this run directory from its last checkpoint")
    parser.add_argument("--quiet", action="store_true", help="print only how it ended")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Train; 130 where Ctrl-C ended the run early."""
    if args.source is not None and args.resume is not None:
        raise ConfigError(
            f"'{args.source}' and --resume RUN: not both. A run goes on with its own settings (`ragen train --resume RUN`); "
            "a preset or file starts a new one"
        )
    if args.source is None and args.resume is None:
        raise ConfigError(
            "say what to train: `ragen train PRESET_OR_FILE` (see `ragen presets`), or `ragen train --resume RUN`"
        )
    from ragen.config import load_config
    from ragen.envs import environment_factory
    from ragen.models.names import local_model
    from ragen.modules import load_plugins

    if args.resume is not None:
        from ragen.runs.directory import find_run, stored_config

        resume, label = find_run(args.resume), None
        config = stored_config(resume, overrides)
    else:
        check_source(args.source)
        resume, label = None, Path(args.source).stem
        config = load_config(args.source, overrides)
    load_plugins(config.plugins)  # one of them may register the environment
    for env in (config.env, *({"name": name} for name in config.eval.also)):
        environment_factory(env)  # a wrong name shows before torch is loaded
    if resume is None:
        local_model(config.model.name)  # likewise
    from ragen.loops.train import train
    from ragen.runs.interrupt import INTERRUPTED
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet) as listener:
        result = train(config, listener=listener, resume=resume, label=label)
    return 130 if result.stopped == INTERRUPTED else 0
