"""Teach a model the reply format (or best play) on demonstrations made by the environment; kept in the cache."""

import argparse
import shlex
import shutil
from collections.abc import Sequence

from ragen.cli.arguments import OVERRIDES as _ABOUT
from ragen.cli.arguments import writable
from ragen.cli.early import check_training
from ragen.cli.output import tell
from ragen.cli.sources import check_source
from ragen.cli.waiting import LOADING, doing
from ragen.errors import ConfigError

OVERRIDES: str | None = (
    "It is kept in $RAGEN_CACHE/warmups (without that variable: ~/.cache/ragen/warmups); a run with the same settings\n"
    "takes it from there, and deleting it only costs the time to make it again. Ctrl-C keeps there what is done.\n\n"
    + _ABOUT
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("source", metavar="PRESET_OR_FILE", help="settings, e.g. bandit-starpo-s-grpo-small")
    parser.add_argument("--out", metavar="DIR", help="also copy the warmed-up model here")
    parser.add_argument("--quiet", action="store_true", help="print only where the model is")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Warm up and say where the model is."""
    from ragen.config import load_config

    check_source(args.source)
    config = load_config(args.source, overrides)
    if config.warmup.data == "none":
        raise ConfigError(
            "warmup.data is 'none': choose --warmup.data format (random valid play), oracle (best play), or a file of "
            "conversations (docs/exports.md)"
        )
    out = writable("--out", args.out) if args.out else None
    if out is not None and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out '{out}' exists and is not empty: choose another directory")
    from ragen.models.hub import require_model

    check_training(config)
    require_model(config.model.name)
    with doing(LOADING, quiet=args.quiet):
        from ragen.loops.compose import build_world, world_of
        from ragen.loops.plan import held_out_contents
        from ragen.loops.warmup import starting_model
    from ragen.runs.listening import listening

    with listening(quiet=args.quiet) as listener:
        world = world_of(config)
        others = [build_world({"name": name}) for name in config.eval.also]
        path = starting_model(config, world, held_out_contents(config, (world, *others)), listener)
    if out is not None:
        shutil.copytree(path, out, dirs_exist_ok=True)
        path = out
    look = ["ragen", "eval", str(path), "--env", str(world.spec["name"])]
    train = ["ragen", "train", args.source, *overrides]
    tell(f"model: {path}\nlook:  {shlex.join(look)}\ntrain: {shlex.join(train)}   (finds this warm-up in the cache)\n")
    return 0
