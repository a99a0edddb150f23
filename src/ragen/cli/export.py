"""Write stored trajectories of a run to a file: ShareGPT JSON lines (.jsonl) or Parquet (.parquet), see docs/exports.md.

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
    from ragen.runs.events import StoredTrajectory
    from ragen.runs.export import Exporter, Row

OVERRIDES: str | None = None
FORMATS = {".jsonl": "sharegpt", ".parquet": "parquet"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="RUN", help="a run directory, or its name under runs/")
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
    from ragen.runs.directory import RunDirectory, find_run
    from ragen.runs.export import Exporter, Origin, write_parquet, write_sharegpt
    from ragen.runs.tokens import tokenizer_of
    from ragen.text.conversations import vocabulary_digest

    opened = RunDirectory.open(find_run(args.run))
    steps = _chosen_steps(opened, args.steps)
    tokenizer = tokenizer_of(opened)
    origin = Origin(
        run=opened.path.name,
        seed=opened.config.seed,
        windowed=opened.config.rollout.context == "window",
        decode=lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=False)),
        tokenizer=vocabulary_digest(tokenizer.get_vocab()),
    )
    exporter = Exporter(origin)
    rows = _rows(opened, exporter, steps, args)
    write = write_sharegpt if form == "sharegpt" else write_parquet
    first = next(rows, None)
    if first is None:
        raise CheckpointError(
            f"none of the episodes of '{opened.path}' in {counted(len(steps), 'stored step')} is as asked for"
        )
    written = write(out, _with_first(first, rows), origin)
    tally = exporter.tally
    episodes = f"{counted(tally.trajectories, 'episode')} of {counted(len(steps), 'step')}"
    lines = [f"{out}: {counted(written, 'row')}, {episodes} ({form})", *tally.notes()]
    if args.format is None:
        lines.append(f"warm up on it: ragen warmup {shlex.quote(str(opened.path / 'config.yaml'))} --warmup.data {out}")
    tell("\n".join(lines) + "\n")
    return 0


def _rows(opened: "RunDirectory", exporter: "Exporter", steps: Sequence[int], args: argparse.Namespace) -> "Iterator[Row]":
    def wanted(item: "StoredTrajectory") -> bool:
        t = item.trajectory
        return (
            not (args.success and not t.success)
            and not (args.trained and not item.trained)
            and (args.min_return is None or t.total_return >= args.min_return)
        )

    for step in steps:
        yield from exporter.rows(step, [item for item in opened.trajectories(step) if wanted(item)])


def _with_first(first: "Row", rest: "Iterator[Row]") -> "Iterator[Row]":
    yield first
    yield from rest


def _chosen_steps(opened: "RunDirectory", text: str | None) -> list[int]:
    """The stored steps that are asked for; a single one that is not stored is an error of ``RunDirectory.trajectories``."""
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
