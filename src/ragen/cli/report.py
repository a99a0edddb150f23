"""Write one HTML page of runs and evaluations: summary, curves, every stored episode to read (docs/report.md).

It opens from disk, without network. Several runs are drawn over each other. Works on a run that goes on.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from ragen.cli.arguments import add_force, writable_file
from ragen.cli.output import complain, tell
from ragen.errors import ConfigError
from ragen.wording import counted

OVERRIDES: str | None = None


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs or kept evaluations, by path or by name")
    parser.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="an .html file (RUN/report.html, of several runs report.html: these are made anew each time)",
    )
    add_force(parser)
    parser.add_argument(
        "--all-tokens", action="store_true", help="every episode's tokens, not only those of a sample and of odd episodes"
    )


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Write the page and say where it is."""
    del overrides
    from ragen.report.file import write_report
    from ragen.runs.directory import RunDirectory
    from ragen.runs.listening import listening
    from ragen.runs.stored import open_stored

    stored = [open_stored(name) for name in args.runs]
    place = stored[0].path / "report.html" if len(stored) == 1 else Path("report.html")
    out = writable_file("--out", args.out or str(place), force=args.force or not args.out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"--out '{out}' is not the name of a page: end it with .html")
    runs = [one for one in stored if isinstance(one, RunDirectory)]
    with listening() as listener:
        steps = sum(len(one.trajectory_steps()) for one in runs) + len(stored) - len(runs)
        listener.on_phase("pack steps", steps)
        made = write_report(stored, out, all_tokens=args.all_tokens, progress=listener.on_progress)
    for one in runs:
        if lost := one.lost_metrics():
            complain(f"note: {one.path}: {lost}, so the page is without their curves\n")
    episodes = f"{counted(made.trajectories, 'episode')} of {counted(made.steps, 'step')}"
    tell(f"written: {out} ({made.bytes / 1e6:.1f} MB; {episodes}, {made.with_tokens} with their tokens)\n")
    return 0
