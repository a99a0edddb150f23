"""What a run's files say in short: its method, its evaluations and how far it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.config.schema import Config
from ragen.errors import CheckpointError
from ragen.metrics.echo_trap import NOTHING, Signals, TrapSettings, detect
from ragen.runs.directory import RunDirectory
from ragen.runs.interrupt import INTERRUPTED
from ragen.runs.lock import writer

DONE = "all steps done"  # why a run ended that did what was planned
FAILED = "failed"  # how the reason of a run begins that an error ended
ECHO_TRAP = "stopped: Echo Trap"  # how the reason of a run begins that its detector ended


@dataclass(frozen=True, slots=True)
class EvalPoint:
    """One evaluation on the run's own environment: after ``step`` steps, success rate with its 95 % interval.

    ``temperature`` is what it sampled at, where it is told.
    """

    name: str
    step: int
    success: float
    interval: tuple[float, float]
    temperature: float | None = None

    def __str__(self) -> str:
        return f"{self.success:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


def paper_name(config: Config) -> str:
    """The method as the paper calls it: StarPO, with the uncertainty filter StarPO-S."""
    return "StarPO" if config.filter.strategy == "none" else "StarPO-S"


def method_name(config: Config) -> str:
    """The paper's name and the advantage estimator."""
    return f"{paper_name(config)} ({config.advantage.name})"


def groups_a_step(config: Config) -> int | None:
    """How many groups each step begins, so that a group's number in the run tells its number in the step.

    None where steps differ in that (``rollout.resample``).
    """
    return None if config.rollout.resample else config.rollout.groups


def eval_points(run: RunDirectory) -> list[EvalPoint]:
    """The evaluations before, after and between the steps, by step. Raises CheckpointError for a damaged file."""
    points = []
    for name, report in run.evaluations().items():
        if name not in ("before", "after") and not name.removeprefix("step-").isdigit():
            continue  # another environment's
        try:
            low, high = report["success_interval"]
            points.append(EvalPoint(name, report["step"], float(report["success"]), (low, high), report.get("temperature")))
        except (ValueError, KeyError, TypeError) as error:
            file = run.path / "eval" / f"{name}.json"
            raise CheckpointError(f"'{file}' is not an evaluation of this version of RAGEN ({error!r})") from None
    return sorted(points, key=lambda point: (point.step, point.name != "before"))


def signals(config: Config, rows: Sequence[Mapping[str, Any]]) -> Signals:
    """What the Echo-Trap detector says of the metrics ``rows`` with the run's settings; nothing where it is off."""
    trap = config.echo_trap
    return NOTHING if trap.action == "off" else detect(rows, TrapSettings(trap.window, trap.drop, trap.spike, trap.solved))


def ending(run: RunDirectory, rows: Sequence[Mapping[str, Any]]) -> str:
    """How a run stands, or why it ended; one that was killed had no time to write it down."""
    done = int(rows[-1]["step"]) if rows else 0
    how_far = f"after step {done} of {run.config.steps}"
    if (process := writer(run.path)) is not None:
        return f"running ({how_far}, process {process})"
    reason = run.end()
    if reason in (None, INTERRUPTED):
        resume = f": `ragen train --resume {run.path}` goes on"
        kept = resume if run.checkpoints.steps() else ", before its first checkpoint: start it again"
        return f"{reason or 'killed'} {how_far}{kept}"
    return reason if reason == DONE else f"{reason} ({how_far})"


def state(run: RunDirectory) -> str:
    """The same in one word: running, done, stopped, failed, interrupted or killed."""
    if writer(run.path) is not None:
        return "running"
    reason = run.end()
    return "killed" if reason is None else "done" if reason == DONE else reason.partition(":")[0]
