"""Curves of a run for the page: every logged metric over the steps, with its group, unit and meaning."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ragen.metrics.definitions import METRICS
from ragen.metrics.units import unit

# Okabe and Ito's colours, told apart with every kind of colour vision
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")

GROUPS = ("learning", "collapse", "update", "collection", "speed")
_LEARNING = (
    "success",
    "solved_groups",
    "return_mean",
    "return_max",
    "task_return_mean",
    "valid_format",
    "process_score_mean",
)
_COLLAPSE = ("return_std", "flat_groups", "entropy", "entropy_spread", "self_similarity", "distinct_2", "common_reply")
_FIRST = {  # what stands in front of its group, in this order
    "learning": tuple(f"rollout/{name}" for name in _LEARNING),
    "collapse": (*(f"rollout/{name}" for name in _COLLAPSE), "update/grad_norm", "rollout/think_words"),
}
_PARTS = {  # the first part of a metric's name → its group
    "collect": "collection",
    "rollout": "collection",
    "filter": "collection",
    "replay": "update",
    "credit": "update",
    "update": "update",
    "diagnostics": "collapse",
    "time": "speed",
    "memory": "speed",
}
_BANDS = {"rollout/return_std": ("rollout/return_std_min", "rollout/return_std_max")}
_HIDDEN = {"trap/warning", "trap/spike", "trap/collapsed", *(edge for edges in _BANDS.values() for edge in edges)}


def columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[float | None]]:
    """Metric → one value a row, None where it was not recorded or is no finite number."""
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    return {name: [_finite(row.get(name)) for row in rows] for name in names}


def described(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """What the page must know of each metric that gets a chart, in the order in which charts stand.

    ``group`` (one of ``GROUPS``), ``unit``, ``about`` and, where two other metrics are its smallest and largest value, their
    names as ``band``. A metric that no table knows (of an outside package) stands in the group of its part.
    """
    present = set(names)
    chosen = [name for name in (*_in_order(), *sorted(present - METRICS.keys())) if name in present and name not in _HIDDEN]
    return {
        name: {
            "group": group_of(name),
            "unit": unit(name),
            "about": METRICS.get(name, ""),
            "band": list(_BANDS[name]) if name in _BANDS and present.issuperset(_BANDS[name]) else None,
        }
        for name in sorted(chosen, key=lambda name: GROUPS.index(group_of(name)))
    }


def group_of(name: str) -> str:
    """The group of charts that a metric stands in.

    >>> [group_of(name) for name in ("rollout/success", "update/grad_norm", "time/step_s", "mine/own")]
    ['learning', 'collapse', 'speed', 'collection']
    """
    first = next((group for group, names in _FIRST.items() if name in names), None)
    return first or _PARTS.get(name.partition("/")[0], "collection")


def _in_order() -> list[str]:
    first = [name for names in _FIRST.values() for name in names]
    return [*first, *(name for name in METRICS if name not in first)]


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
