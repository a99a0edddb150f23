"""List runs: environment, method, state, steps done of those planned, rollbacks, success before and after, last step."""

import argparse
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ragen.cli.output import tell
from ragen.errors import CheckpointError, RagenError, reason
from ragen.wording import counted

if TYPE_CHECKING:
    from ragen.runs.directory import RunDirectory

OVERRIDES: str | None = None
TITLES = ("run", "environment", "method", "state", "steps", "success before → after", "last step")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("root", nargs="?", default="runs", metavar="DIR", help="the directory that holds the runs (runs)")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Print the table, the run that went on last at the end."""
    del overrides
    from ragen.runs.directory import RunDirectory, being_prepared

    root = Path(args.root)
    try:
        found = [path.parent for path in root.glob("*/config.yaml")] if root.is_dir() else []
        prepared = [path for path in sorted(root.iterdir()) if being_prepared(path)] if root.is_dir() else []
    except (OSError, ValueError) as error:  # no name of a directory, or one that may not be looked at
        raise CheckpointError(f"'{root}' cannot be read: {reason(error)}") from None
    if not found and not prepared:
        raise CheckpointError(_nothing_in(root))
    rows: list[tuple[str, ...]] = [TITLES]
    for path in sorted(found, key=_last_time):
        try:
            rows.append(_row(RunDirectory.open(path)))
        except RagenError as error:
            rows.append((path.name, f"cannot be read: {error}"))
    rows += [(path.name, "", "", "being prepared", "", "", "") for path in prepared]
    whole = [row for row in rows if len(row) == len(TITLES)]
    widths = [max(len(row[column]) for row in whole) for column in range(len(TITLES))]
    widths[0] = max(len(row[0]) for row in rows)
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False)).rstrip() for row in rows)
    tell("\n".join(lines) + "\n")
    return 0


def _nothing_in(root: Path) -> str:
    if (root / "config.yaml").is_file():
        return f"'{root}' is a run itself: `ragen show {root}`, or list those beside it (`ragen runs {root.parent}`)"
    if not root.is_dir():
        return f"there is no directory '{root}': name the one that holds the runs, or start one with `ragen train`"
    below = sorted({path.parent.parent for path in root.glob("*/*/config.yaml")})
    beside = f"did you mean '{below[0]}'?" if below else "name another directory, or start one with `ragen train`"
    return f"there are no runs in '{root}': {beside}"


def _row(run: "RunDirectory") -> tuple[str, ...]:
    from ragen.envs.locate import shown
    from ragen.runs.summary import eval_points, method_name, state

    metrics = run.metrics()
    done = max(metrics[-1]["step"] if metrics else 0, *run.checkpoints.steps(), 0)
    by_name = {point.name: str(point) for point in eval_points(run)}
    rollbacks = len(run.rollbacks())
    lost = ", metrics lost" if run.lost_metrics() else ""
    took = metrics[-1].get("time/step_s") if metrics else None
    when = datetime.fromtimestamp(_last_time(run.path)).astimezone()
    return (
        run.path.name,
        shown(str(run.config.env.get("name"))),
        method_name(run.config),
        state(run),
        f"{done}/{run.config.steps}" + (f", {counted(rollbacks, 'rollback')}" if rollbacks else "") + lost,
        f"{by_name.get('before', '–')} → {by_name.get('after', '–')}",
        f"{when:%Y-%m-%d %H:%M}" + (f" ({took:.1f} s)" if took is not None else ""),
    )


def _last_time(path: Path) -> float:
    """When the run last recorded a step (or was made), in seconds since 1970."""
    metrics = path / "metrics.jsonl"
    return (metrics if metrics.is_file() else path / "config.yaml").stat().st_mtime
