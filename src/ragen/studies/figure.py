"""Learning curves of a study: the mean over seeds with the range of the seeds around it, as SVG."""

import io
import re
from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ragen.errors import ConfigError
from ragen.extras import install_command
from ragen.metrics.curves import WINDOW, curve, smoothed
from ragen.report.curves import COLOURS
from ragen.studies.grid import Plan, Variant
from ragen.studies.outcomes import Record

PANELS = (  # metric, title
    ("rollout/success", "success in training"),
    ("rollout/return_std", "in-group std of the return"),
    ("rollout/entropy", "token entropy (nats)"),
    ("update/grad_norm", "gradient norm before clipping"),
)
# each colour with one dash after the other
DASHES = ("-", "--", ":", "-.")
_LATER_DECIMALS = re.compile(r"(?<=\.\d)\d+")
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "ragen", "font.family": "sans-serif", "font.size": 10}
FEW_STEPS = 5  # so short a curve gets a mark a step: one of a single step has no line


def bands(curves: Sequence[Sequence[float | None]]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, smallest and largest value over the seeds at each step, of curves smoothed over ``WINDOW`` steps; each (T,).

    T is the length of the longest; where a curve has ended or has no data, the others are taken; NaN where none has any.
    """
    length = max(map(len, curves), default=0)
    table = np.full((len(curves), length), np.nan)
    for row, values in zip(table, curves, strict=True):
        row[: len(values)] = smoothed(curve(values))
    known = ~np.isnan(table)
    count = known.sum(0)
    mean = np.where(count > 0, np.where(known, table, 0.0).sum(0) / np.maximum(count, 1), np.nan)
    low = np.where(count > 0, np.where(known, table, np.inf).min(0, initial=np.inf), np.nan)
    high = np.where(count > 0, np.where(known, table, -np.inf).max(0, initial=-np.inf), np.nan)
    return mean, low, high


def draw(plan: Plan, records: Mapping[str, Record]) -> str:
    """The picture as the text of an SVG file: a panel a quantity, a row of them for each value of the study's axis ``rows``.

    Raises ConfigError where matplotlib is not installed.
    """
    try:
        import matplotlib as mpl
    except ImportError:
        raise ConfigError(f"a report's curves need matplotlib, which is not installed: {install_command('plots')}") from None
    from matplotlib.figure import Figure

    axis = plan.study.rows
    groups: dict[str, list[Variant]] = {}
    for variant in plan.variants:
        groups.setdefault(variant.values.get(axis, ""), []).append(variant)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(13, 3.2 * len(groups)), layout="constrained")
        parts: Any = figure.subfigures(len(groups), 1, squeeze=False)
        for part, (name, variants) in zip(parts[:, 0], groups.items(), strict=True):
            if name:
                part.suptitle(_escaped(name), fontsize=11)
            _draw_row(part, variants, records, axis)
        return _svg(figure)


def _draw_row(part: Any, variants: Sequence[Variant], records: Mapping[str, Record], axis: str) -> None:
    from matplotlib.ticker import MaxNLocator

    panels = part.subplots(1, len(PANELS))
    for panel, (_, title) in zip(panels, PANELS, strict=True):
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))  # a step is never half done
    styles = cycle([(colour, dash) for dash in DASHES for colour in COLOURS])
    for variant, (colour, dash) in zip(variants, styles, strict=False):
        found = [records[run.name] for run in variant.runs if run.name in records and records[run.name].steps]
        if not found:
            continue
        words = [value for key, value in variant.values.items() if key != axis] or list(variant.values.values())
        label = f"{_escaped(', '.join(words))} (seeds: {len(found)})"
        for panel, (metric, _) in zip(panels, PANELS, strict=True):
            mean, low, high = bands([record.curve(metric) for record in found])
            steps = np.arange(1, mean.size + 1)
            marker = "o" if mean.size < FEW_STEPS else None
            panel.plot(steps, mean, color=colour, linestyle=dash, linewidth=1.4, marker=marker, markersize=3, label=label)
            panel.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    for panel in panels:
        panel.set_ylim(bottom=0)
    panels[0].set_ylim(0, 1.02)
    handles, labels = panels[0].get_legend_handles_labels()
    if labels:
        part.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), fontsize=8, frameon=False)


def _svg(figure: Any) -> str:
    """The figure's text from its root element on: without date, document type and metadata, the same for the same data.

    Paths keep one decimal (a tenth of a point), which halves the file.
    """
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = re.sub(r' d="[^"]*"', lambda path: _LATER_DECIMALS.sub("", path[0]), out.getvalue())
    return text[text.index("<svg") :]


def _escaped(text: str) -> str:
    return text.replace("\\", "/").replace("$", r"\$")


CAPTION = f"Mean over seeds of curves smoothed over {WINDOW} steps; the band is from the smallest to the largest seed."
