"""Write stored episodes of a run or an evaluation to a file: ShareGPT JSON lines (.jsonl) or Parquet (docs/exports.md).

A warm-up takes such a file: ragen warmup PRESET --warmup.data FILE
"""

import argparse
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ragen.cli.arguments import add_force, writable_file
from ragen.cli.output import tell
from ragen.errors import CheckpointError, ConfigError
from ragen.wording import counted

if TYPE_CHECKING:
    from ragen.runs.directory import RunDirectory
    from ragen.runs.export import Exporter, Row
    from ragen.runs.stored import Stored

OVERRIDES: str | None = None
FORMATS = {".jsonl": "sharegpt", ".parquet": "parquet"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="RUN_OR_EVALUATION", help="a run or a kept evaluation, by path or by name")
    parser.add_argument("-o", "--out", required=True, metavar="FILE", help="a .jsonl or .parquet file")
    add_force(parser)
    parser.add_argument(
        "--format", choices=sorted(FORMATS.values()), help="what to write (default: by the end of FILE, .jsonl is sharegpt)"
    )
    parser.add_argument("--steps", metavar="STEPS", help="only these training steps, such as 40, 1-20 or 5,10-12")
    parser.add_argument("--success", action="store_true", help="only episodes that succeeded")
    parser.add_argument("--trained", action="store_true", help="only episodes that were trained on")
    parser.add_argument("--min-return", type=float, metavar="X", help="only episodes with a total return of X or more")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Write the chosen trajectories, and say how many and what could not be told."""
    del overrides
    out = writable_file("--out", args.out, force=args.force)
    form = args.format or FORMATS.get(out.suffix)
    if form is None:
        raise ConfigError(f"--out '{out}' has no known format: end it with {' or '.join(FORMATS)}, or give --format")
    from ragen.runs.directory import RunDirectory
    from ragen.runs.export import Exporter, origin_of, write_parquet, write_sharegpt
    from ragen.runs.stored import open_stored

    opened = open_stored(args.run)
    is_run = isinstance(opened, RunDirectory)
    steps = _chosen_steps(opened, args)
    exporter = Exporter(origin_of(opened))
    rows = _rows(opened, exporter, steps, args)
    write = write_sharegpt if form == "sharegpt" else write_parquet
    first = next(rows, None)
    of = f"of {counted(len(steps), 'step')}" if is_run else "of an evaluation"
    if first is None:
        raise CheckpointError(f"none of the episodes {of} in '{opened.path}' is as asked for")
    written = write(out, _with_first(first, rows), exporter.origin)
    lines = [f"{out}: {counted(written, 'row')}, {counted(exporter.tally.trajectories, 'episode')} {of} ({form})"]
    lines += exporter.tally.notes()
    if args.format is None:
        preset = shlex.quote(str(opened.path / "config.yaml")) if is_run else "PRESET"
        lines.append(f"warm up on it: ragen warmup {preset} --warmup.data {out}")
    tell("\n".join(lines) + "\n")
    return 0


def _rows(
    opened: "Stored", exporter: "Exporter", steps: "Sequence[int | None]", args: argparse.Namespace
) -> "Iterator[Row]":
    from ragen.runs.stored import episodes

    for step in steps:
        wanted = [
            item
            for item in episodes(opened, step).items
            if (item.trajectory.success or not args.success)
            and (item.trained or not args.trained)
            and (args.min_return is None or item.trajectory.total_return >= args.min_return)
        ]
        yield from exporter.rows(step or 0, wanted)


def _with_first(first: "Row", rest: "Iterator[Row]") -> "Iterator[Row]":
    yield first
    yield from rest


def _chosen_steps(opened: "Stored", args: argparse.Namespace) -> "Sequence[int | None]":
    """The stored steps that are asked for; None for an evaluation, which has none."""
    from ragen.runs.directory import RunDirectory

    if isinstance(opened, RunDirectory):
        return _of_run(opened, args.steps)
    for name in ("steps", "trained"):
        if getattr(args, name):
            raise ConfigError(f"'{opened.path}' is an evaluation, in which nothing is trained: leave --{name} out")
    return [None]


def _of_run(opened: "RunDirectory", text: str | None) -> list[int]:
    """The stored steps that ``text`` names; a single one that is not stored is an error of ``RunDirectory.trajectories``."""
    stored = opened.trajectory_steps()
    if not stored:
        opened.trajectories()  # raises: it says why there are none
    if text is None:
        return stored
    chosen: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if match is None:
            raise ConfigError(f"--steps is {text!r}: give steps and ranges, such as 40, 1-20 or 5,10-12")
        low, high = int(match[1]), int(match[2] or match[1])
        chosen |= {step for step in stored if low <= step <= high} if match[2] else {low}
    if not chosen:
        raise CheckpointError(f"no step of {text} is stored in '{opened.path}': {stored[0]} to {stored[-1]} are there")
    return sorted(chosen)
