"""Draw learning curves of runs: success with the evaluations' 95 % intervals, return, its spread in groups, entropy."""

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.cli.arguments import add_force, writable_file
from ragen.errors import CheckpointError, ConfigError
from ragen.extras import install_command
from ragen.wording import counted

if TYPE_CHECKING:
    from ragen.runs.directory import RunDirectory

OVERRIDES: str | None = None
PLACE = "curve.png"
FORMATS = (".png", ".svg", ".pdf")
MARGIN = 0.1  # of the height, above the highest point
CURVES = (  # metric, title, lowest possible value
    ("rollout/success", "success in training", 0.0),
    ("rollout/return_mean", "mean return", None),
    ("rollout/return_std", "in-group std of the return", 0.0),
    ("rollout/entropy", "token entropy (nats)", 0.0),
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories, or their names under runs/")
    parser.add_argument("-o", "--out", metavar="FILE", help=f"a .png, .svg or .pdf file ({PLACE}, made anew each time)")
    add_force(parser)


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Draw and say where the picture is."""
    del overrides
    from ragen.runs.directory import RunDirectory, find_run

    out = writable_file("--out", args.out or PLACE, force=args.force or not args.out)
    if out.suffix.lower() not in FORMATS:
        raise ConfigError(f"--out '{out}' has no known format: end it with {', '.join(FORMATS)}")
    runs = [RunDirectory.open(find_run(name)) for name in args.runs]
    draw(runs, out)
    sys.stdout.write(f"written: {out}\n")
    return 0


def draw(runs: "Sequence[RunDirectory]", out: Path) -> None:
    """One panel a quantity, one colour a run; of a single run the title names environment, model and method."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError(f"`ragen plot` needs matplotlib, which is not installed: {install_command('plots')}") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from ragen.envs.locate import shown
    from ragen.runs.disk import clear_disk_errors
    from ragen.runs.summary import method_name

    figure, panels = plt.subplots(1, len(CURVES), figsize=(13, 3.1), layout="constrained")
    for panel, (_, title, _) in zip(panels, CURVES, strict=True):
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.margins(y=MARGIN)
        panel.locator_params(axis="x", integer=True)
    for number, one in enumerate(runs):
        _draw_run(panels, one, f"C{number}", label=one.path.name)
    for panel, (_, _, floor) in zip(panels, CURVES, strict=True):
        if floor is not None:  # a margin of the panel's height, not of the curve's own range
            highest = panel.dataLim.y1
            known = math.isfinite(highest) and highest > floor
            panel.set_ylim(floor, floor + (1 + MARGIN) * (highest - floor) if known else None)
    panels[0].set_ylim(0, 1.05)
    panels[0].set_title(f"success in training, T = {_told(one.config.rollout.temperature for one in runs)}", fontsize=10)
    handles = [*panels[0].get_legend_handles_labels()[0], *_marks(runs)]
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 6), fontsize=8, frameon=False)
    config = runs[0].config
    parts = (shown(str(config.env.get("name"))), config.model.name, method_name(config), f"seed {config.seed}")
    figure.suptitle(" · ".join(map(str, parts)) if len(runs) == 1 else counted(len(runs), "run"), fontsize=11)
    with clear_disk_errors("the picture", out):
        figure.savefig(out, dpi=110)
    plt.close(figure)


def _draw_run(panels: Any, run: "RunDirectory", color: str, label: str) -> None:
    from ragen.runs.summary import eval_points

    rows = run.metrics()
    if not rows:
        raise CheckpointError(f"'{run.path}' has no step to draw yet (its metrics.jsonl is empty or not there)")
    steps = [row["step"] for row in rows]
    for panel, (key, _, _) in zip(panels, CURVES, strict=True):
        values = [math.nan if row.get(key) is None else row[key] for row in rows]
        panel.plot(steps, values, marker="o", markersize=3, color=color, label=label)
    for point in eval_points(run):
        low, high = point.interval
        panels[0].errorbar(
            [point.step + 0.5],  # between the step before it and the one after
            [point.success],
            yerr=[[max(0.0, point.success - low)], [max(0.0, high - point.success)]],
            fmt="s",
            capsize=3,
            color=color,
            markeredgecolor="black",
            markerfacecolor="white" if point.name == "before" else color,
        )


def _marks(runs: "Sequence[RunDirectory]") -> list[Any]:
    """What the squares mean, in grey: a run's have its colour."""
    from matplotlib.lines import Line2D

    from ragen.runs.summary import eval_points

    points = [point for one in runs for point in eval_points(one)]
    marks = []
    for when, white in (("before", True), ("during or after", False)):
        shown = [point for point in points if (point.name == "before") is white]
        if not shown:
            continue
        how = f"T = {_told(known)}" if (known := [p.temperature for p in shown if p.temperature is not None]) else ""
        words = f"evaluation {when} training ({', '.join(filter(None, (how, '95 % interval')))})"
        face = "white" if white else "grey"
        marks.append(Line2D([], [], linestyle="", marker="s", markeredgecolor="black", markerfacecolor=face, label=words))
    return marks


def _told(values: Iterable[float]) -> str:
    """The different values among these, in words."""
    return " or ".join(f"{value:g}" for value in sorted(set(values)))
