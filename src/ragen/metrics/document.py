"""The text of ``docs/metrics.md``: one table a part of ``METRICS``. ``scripts/tables.py`` writes it, a test compares."""

from ragen.metrics.definitions import METRICS

_INTRO = """# Metrics

This page is generated (`make docs`); a test compares it with the code.
Each training step adds one line to `metrics.jsonl` of the run directory (and is told to the trackers of
`run.trackers`): its `step`, then the metrics below. A metric without data in a step is left out: it is never written as 0.
Episodes that the environment lost to an error are counted in `rollout/errors` and stand in no mean.
An evaluation is a file of its own, `eval/<name>.json`, with the fields of `ragen.metrics.evaluation.EvalReport`: the same
numbers as below without the prefix, with intervals as pairs, the reference players, and the outcome of every instance.

"Mean over optimiser steps" means over those taken in one training step. Logarithms are natural (nats).
"""
_ABOUT = {
    "collect": "How the batch came about ([collection.md](collection.md)).",
    "rollout": "The collected batch, before the filter. The definitions are the functions of `ragen.metrics`.",
    "filter": "What the uncertainty filter did.",
    "replay": "Groups of the replay buffer that joined the update ([collection.md](collection.md)).",
    "credit": "The advantages, before the update.",
    "update": "What the update did (`ragen.learn.UpdateStats`).",
    "diagnostics": "Every `diagnostics.every` steps, before the update ([collapse.md](collapse.md)).",
    "trap": "The Echo-Trap detector ([collapse.md](collapse.md)), unless `echo_trap.action` is off.",
    "time": "Wall-clock time of the step.",
    "memory": "",
    "eval": "Fixed evaluation instances. Intervals of success: Wilson over instances, or a bootstrap clustered by instance "
    "where an instance has several samples; of the return: the bootstrap.",
}


def metrics_page() -> str:
    """The whole page as Markdown.

    >>> "| `rollout/success` | share of episodes whose task was solved" in metrics_page()
    True
    """
    lines = [_INTRO]
    for part in dict.fromkeys(name.partition("/")[0] for name in METRICS):
        lines += [f"## {part}", ""]
        lines += [_ABOUT[part], ""] if _ABOUT[part] else []
        lines += ["| metric | meaning |", "|---|---|"]
        lines += [f"| `{name}` | {_cell(text)} |" for name, text in METRICS.items() if name.startswith(f"{part}/")]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
