"""What the Echo-Trap detector says about stored runs: `python scripts/echo_trap.py RUN…`.

One line a run: its steps, the step of the early warning with what gave it, of the spike and of the collapse, the largest
success level and the last one. At the end, over all runs: how many collapsed, how many of those were warned of before and by
how many steps, and how many warnings no collapse followed (false alarms, or traps that the run's end came before).
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

from ragen.metrics.echo_trap import Signals, TrapSettings, detect
from ragen.runs.events import read_steps

LAST = 5  # steps the success levels are means of


def main(words: Sequence[str]) -> int:
    """Print the table and the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or metrics.jsonl files")
    for field in fields(TrapSettings):
        parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default, help=f"({field.default})")
    args = parser.parse_args(words)
    settings = TrapSettings(*(getattr(args, field.name) for field in fields(TrapSettings)))
    found = []
    print(f"{'steps':>5} {'warning':>8} {'spike':>6} {'collapse':>8} {'peak':>6} {'last':>6}  run  (what gave the warning)")
    for path in args.runs:
        rows = read_steps(path / "metrics.jsonl" if path.is_dir() else path)
        found.append(detect(rows, settings))
        print(line(path, rows, found[-1]))
    print(counts(found))
    return 0


def line(path: Path, rows: Sequence[Mapping[str, Any]], signals: Signals) -> str:
    """One run's row of the table."""
    success = [row["rollout/success"] for row in rows if row.get("rollout/success") is not None]
    levels = [sum(success[n : n + LAST]) / LAST for n in range(len(success) - LAST + 1)]
    peak, last = (f"{max(levels):.3f}", f"{levels[-1]:.3f}") if levels else ("–", "–")
    warning, spike, collapsed = (step or "–" for step in (signals.warning, signals.spike, signals.collapsed))
    why = f"  ({', '.join(signals.fired)})" if signals.fired else ""
    return f"{len(rows):>5} {warning:>8} {spike:>6} {collapsed:>8} {peak:>6} {last:>6}  {path}{why}"


def counts(found: Sequence[Signals]) -> str:
    """The warnings set against the collapses."""
    collapsed = [s for s in found if s.collapsed is not None]
    ahead = [s.collapsed - s.warning for s in collapsed if s.collapsed is not None and s.warning is not None]
    early = [steps for steps in ahead if steps > 0]
    alone = sum(s.warning is not None and s.collapsed is None for s in found)
    lead = f", by {median(early):g} steps (median)" if early else ""
    return (
        f"{len(found)} runs: {len(collapsed)} collapsed, {len(early)} of them warned of before{lead}; "
        f"{alone} warned without a collapse; {sum(s.spike is not None for s in found)} with a spike"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
