"""Draw the learning curve of a run: ``python scripts/plot_run.py RUN OUT.png`` (needs the extra ``plots``)."""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

CURVES = (
    ("rollout/success", "success"),
    ("rollout/return_mean", "mean return"),
    ("rollout/return_std", "in-group std of the return"),
    ("rollout/entropy", "token entropy (nats)"),
)


def main(run: Path, out: Path) -> None:
    """One panel a quantity; the title names the run's model, environment and method."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = [row["step"] for row in rows]
    figure, panels = plt.subplots(1, len(CURVES), figsize=(13, 2.8), layout="constrained")
    for panel, (key, title) in zip(panels, CURVES, strict=True):
        panel.plot(steps, [row[key] for row in rows], marker="o", markersize=3, color="#2a6f97")
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("step")
        panel.grid(alpha=0.3)
        panel.set_ylim(bottom=0)
    evaluations = {name: run / "eval" / f"{name}.json" for name in ("before", "after")}
    for (name, file), x in zip(evaluations.items(), (0, steps[-1] + 1), strict=True):
        if file.is_file():
            report = json.loads(file.read_text(encoding="utf-8"))
            low, high = report["success_interval"]
            error = [[report["success"] - low], [high - report["success"]]]
            panels[0].errorbar(
                [x], [report["success"]], yerr=error, fmt="s", capsize=3, color="#c8553d", label=f"eval {name}"
            )
    panels[0].legend(fontsize=7)
    panels[0].set_ylim(0, 1.05)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
