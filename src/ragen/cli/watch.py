"""Follow a training in the browser: the page of `ragen report`, served on this machine, grows with the run.

Ctrl-C ends it; the training is not touched. A finished run can be looked at as well.
"""

import argparse
from collections.abc import Sequence

OVERRIDES: str | None = None
PORT = 8808


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("run", metavar="RUN", help="a run directory, or its name under runs/")
    parser.add_argument("--port", type=int, default=PORT, help=f"port on 127.0.0.1 ({PORT}; 0 = any that is free)")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    del overrides
    from ragen.report.live import Watch
    from ragen.runs.directory import RunDirectory, find_run

    path = find_run(args.run)
    RunDirectory.open(path)  # a damaged run is said here rather than in the browser
    with Watch(path, args.port) as server:
        server.serve("Ctrl-C ends this; the run goes on")
    return 0
