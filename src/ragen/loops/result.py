"""What a run came to, and whether it has come to its end: known from its files, without loading torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ragen.metrics.echo_trap import NOTHING, Signals
from ragen.metrics.evaluation import EvalReport
from ragen.runs.directory import RunDirectory
from ragen.runs.evaluations import read_report
from ragen.runs.resume import ResumePoint
from ragen.runs.summary import DONE


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a run came to: its directory, the steps done of those ``planned``, why it stopped, evaluations before and after
    (None: not made), the metrics of the steps made now, what the Echo-Trap detector saw, from which step to which it was
    rolled back, and how many of the last steps in a row taught hardly anything (``Guard.flat``).
    """

    run: Path
    steps: int
    planned: int
    stopped: str
    before: EvalReport | None
    after: EvalReport | None
    history: tuple[Mapping[str, float], ...]
    signals: Signals = NOTHING
    rollbacks: tuple[tuple[int, int], ...] = ()
    flat: int = 0


def finished(point: ResumePoint) -> TrainResult | None:
    """The result of a run that has nothing left to do, steps and evaluations; what a kill left of its end is tidied."""
    run, config = point.run, point.run.config
    if point.step < config.steps or not evaluated(run, point.step):
        return None
    before, after = stored_report(run, "before", 0), stored_report(run, _last_evaluation(point.step), point.step)
    run.settle(point.step, DONE)
    return TrainResult(run.path, point.step, config.steps, DONE, before, after, (), rollbacks=run.rollbacks())


def evaluated(run: RunDirectory, done: int) -> bool:
    """Whether every evaluation is there that is due after the last step."""
    wanted, name = run.config.eval, _last_evaluation(done)
    names = (name, *(f"{name}-{other}" for other in wanted.also)) if wanted.episodes else ()
    return all(stored_report(run, each, done) is not None for each in names)


def _last_evaluation(done: int) -> str:
    return "after" if done else "before"


def stored_report(run: RunDirectory, name: str, step: int) -> EvalReport | None:
    """An evaluation made after ``step`` steps, where it has been made, and with the present settings."""
    found = run.evaluations().get(name)
    if found is None or found["step"] != step:
        return None
    report = read_report(found, f"eval/{name}.json of '{run.path}'", "remove it")
    wanted = run.config.eval
    same = (report.samples, report.temperature, report.seed) == (wanted.samples, wanted.temperature, wanted.seed)
    begun = sum(map(len, report.outcomes)) + report.errors  # lost episodes count: they would be lost again
    return report if same and begun == wanted.episodes * wanted.samples else None
