"""Follow a training in the browser: the page of `ragen report`, served on this machine, grows with the run.

Ctrl-C ends it; the training is not touched. A finished run can be looked at as well.
"""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ragen.runs.directory import RunDirectory

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
    run = RunDirectory.open(path)  # a damaged run is said here rather than in the browser
    with Watch(path, args.port) as server:
        server.serve(f"Ctrl-C ends this; {_state(run)}")
    return 0


def _state(run: "RunDirectory") -> str:
    """Whether the page will change, and where it will not, why and what to do instead."""
    from ragen.runs.lock import writer
    from ragen.runs.summary import ending

    if writer(run.path) is not None:
        return "the run goes on"
    report = f"`ragen report {shlex.quote(str(run.path))}` writes it to a file"
    return f"the run does not go on ({ending(run, run.metrics())}), so this page will not change; {report}"
