"""Print stored trajectories of a run: trained tokens marked, reward, penalty and advantage of each turn."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from ragen.runs.directory import RunDirectory

OVERRIDES: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="RUN", help="a run directory, or its name under runs/")
    parser.add_argument("--step", type=int, help="the training step (default: the last one stored)")
    parser.add_argument("--group", type=int, help="only this group")
    parser.add_argument("--member", type=int, help="only this member of each group")
    parser.add_argument("--limit", type=int, default=8, help="trajectories at most (8; 0 = all)")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print the chosen trajectories."""
    del overrides
    if args.limit < 0:
        raise ConfigError(f"--limit is {args.limit}; use 0 (all) or more")
    from rich.console import Console

    from ragen.runs.directory import RunDirectory, find_run
    from ragen.runs.view import show_trajectories

    opened = RunDirectory.open(find_run(args.run))
    stored = opened.trajectories(args.step)
    chosen = [
        item
        for item in stored
        if (args.group is None or item.group == args.group)
        and (args.member is None or item.trajectory.member == args.member)
    ]
    if not chosen:
        groups = sorted({item.group for item in stored if item.group is not None})
        raise CheckpointError(
            f"no such trajectory: groups are {groups}, members 0 to {max(s.trajectory.member for s in stored)}"
        )
    step = args.step if args.step is not None else opened.trajectory_steps()[-1]
    decode = decoder(_tokenizer_home(opened))
    console = Console()
    title = f"{opened.path} · step {step} · {len(stored)} trajectories"
    console.print(title, markup=False, highlight=False, soft_wrap=True)
    show_trajectories(chosen, console, decode, limit=args.limit or None)
    return 0


def decoder(path: Path) -> Callable[[Sequence[int]], str]:
    """A function from ids to their exact text, special tokens included."""
    from ragen.models.load import load_tokenizer

    tokenizer = load_tokenizer(path)
    return lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _tokenizer_home(opened: "RunDirectory") -> Path:
    """The newest checkpoint, or before there is one the model the run began from."""
    if steps := opened.checkpoints.steps():
        return opened.checkpoints.path(steps[-1])
    from ragen.models.resolve import resolve_model

    return resolve_model(opened.config.model.name)
