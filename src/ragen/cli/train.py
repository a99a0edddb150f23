"""Train an agent from a preset (`ragen presets`) or a YAML file, or go on with a run."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.cli.arguments import OVERRIDES as _ABOUT
from ragen.cli.early import check_training
from ragen.cli.sources import check_source
from ragen.cli.waiting import LOADING, doing
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
    if args.source is not None and args.resume is not None:
        raise ConfigError(
            f"'{args.source}' and --resume RUN: not both. A run goes on with its own settings (`ragen train --resume RUN`); "
            "a preset or file starts a new one"
        )
    if args.source is None and args.resume is None:
        raise ConfigError(
            "say what to train: `ragen train PRESET_OR_FILE` (see `ragen presets`), or `ragen train --resume RUN`"
        )
    if args.resume is not None:
        return _go_on(args, overrides)
    from ragen.config import load_config
    from ragen.models.hub import require_model

    check_source(args.source)
    config = load_config(args.source, overrides)
    check_training(config)
    require_model(config.model.name)
    return _train(config, args, label=_label(args.source, config))


def _label(source: str, config: "Config") -> str:
    """How the name of the run begins: the preset or file, with the environment that the run has in place of the preset's."""
    from ragen.envs.locate import label as short_name

    preset, name = Path(source).stem, str(config.env["name"])
    environment, mark, method = preset.partition("-starpo")
    return preset if not mark or environment == name else f"{short_name(name)}{mark}{method}"


def _go_on(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Go on with a run; what forbids it, and that nothing is left to do, is said before torch is loaded."""
    from ragen.envs import find_environment
    from ragen.loops.result import finished
    from ragen.runs.directory import find_run, stored_config
    from ragen.runs.resume import resumed

    place = find_run(args.resume)
    config = stored_config(place, overrides)
    check_training(config)
    with resumed(place, config.model_copy(update={"env": dict(find_environment(config.env).spec)})) as point:
        done = finished(point)
    if done is None:
        return _train(config, args, resume=place)
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet) as listener:
        listener.on_end(done)
    return 0


def _train(config: "Config", args: argparse.Namespace, *, resume: Path | None = None, label: str | None = None) -> int:
    with doing(LOADING, quiet=args.quiet):
        from ragen.loops.train import train
    from ragen.runs.interrupt import INTERRUPTED
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet) as listener:
        result = train(config, listener=listener, resume=resume, label=label)
    return 130 if result.stopped == INTERRUPTED else 0
