"""Telling a run's trackers: each point once, through crashes and resumes, and at no risk to the run.

``trackers.json`` of the run directory keeps, for each tracker, the run's id there and the last step told of each series. A
tracker that is opened is told all that the run has recorded beyond it: a tracker that failed, or was added later, catches
up when the run goes on. A step that a resumed run makes again is not told again, unless the tracker could remove it. Steps
made again after a rollback are other numbers: they, and those before them, go to a new run of the tracker, beside the one
that holds what was given up.
"""

import json
import logging
import math
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ragen.runs.disk import write_text
from ragen.runs.trackers.base import TrackedRun, Tracker, trackers

STATE = "trackers.json"
TRAINING = "train"  # the series of the training steps, whose metrics keep their names

_log = logging.getLogger(__name__)
_EVALUATION = re.compile(r"(?:before|after|step-\d+)(?:-(?P<world>.+))?")


@dataclass(frozen=True, slots=True)
class Point:
    """The numbers of one step of one series; not finite ones are left out when it is told."""

    series: str
    step: int
    metrics: Mapping[str, Any]

    def finite(self) -> dict[str, float]:
        """The metrics that are finite numbers."""
        numbers = {k: v for k, v in self.metrics.items() if isinstance(v, int | float) and not isinstance(v, bool)}
        return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def evaluation_point(name: str, report: Mapping[str, Any]) -> Point:
    """The numbers of a stored evaluation: series ``eval``, or ``eval/ENVIRONMENT`` for one of ``eval.also``."""
    match = _EVALUATION.fullmatch(name)
    world = match["world"] if match else name
    series = f"eval/{world}" if world else "eval"
    low, high = report.get("success_interval") or (None, None)
    values = {**report, "success_low": low, "success_high": high}
    metrics = {f"{series}/{key}": value for key, value in values.items() if key not in ("step", "seed")}
    return Point(series, report["step"], metrics)


def require_trackers(names: Sequence[str]) -> None:
    """Raise ConfigError for a tracker that is not known or cannot work here."""
    for name in names:
        trackers.get(name).require()


@dataclass
class _Told:
    """What a tracker knows: its id of the run, after which rollback that began, and the last step of each series."""

    id: str
    rollbacks: int
    steps: dict[str, int] = field(default_factory=dict)

    def take(self, point: Point) -> bool:
        """Whether a point is new; from now on it is not."""
        if point.step <= self.steps.get(point.series, -1):
            return False
        self.steps[point.series] = point.step
        return True


class Trackers:
    """The trackers of the run in ``path``; nothing that one of them raises comes out of here.

    ``rollbacks`` tells how often the run was rolled back so far.

    A tracker that hangs is not caught: it hangs the run.
    """

    def __init__(self, names: Sequence[str], path: Path, settings: Mapping[str, Any], rollbacks: Callable[[], int]) -> None:
        self._path, self._settings, self._rollbacks = path, settings, rollbacks
        self._names = list(names)
        self._open: dict[str, Tracker] = {}

    def tell(self, point: Point, history: Callable[[], Iterable[Point]]) -> None:
        """Tell all trackers of a point; one that is opened now, of all of ``history`` (this point too)."""
        for name in tuple(self._names):
            with self._guarded(name):
                points = [point] if name in self._open else sorted(history(), key=lambda each: each.step)
                if name not in self._open:
                    self._begin(name)
                self._hand_over(self._open[name], self._told[name], points)

    def _hand_over(self, tracker: Tracker, told: _Told, points: Sequence[Point]) -> None:
        done = dict(told.steps)
        new = [point for point in points if told.take(point)]
        self._save()  # before it is told: a kill in between loses a point and never doubles one
        try:
            for point in new:
                tracker.log(point.step, point.finite())
                done[point.series] = point.step
        except Exception:
            told.steps = done
            self._save()
            raise

    def cut_after(self, step: int) -> None:
        """The run goes on from ``step``: what is made again will be told again to the trackers that can forget."""
        self.close()
        for name in tuple(self._names):
            with self._guarded(name):
                told = self._told.get(name)
                if told is not None and trackers.get(name).forgets:
                    told.steps = {series: min(last, step) for series, last in told.steps.items()}
                    self._save()

    def close(self) -> None:
        """Close those that are open; they open again where the run goes on."""
        for name in tuple(self._open):
            with self._guarded(name):
                self._open.pop(name).close()

    def _begin(self, name: str) -> None:
        kind = trackers.get(name)
        rollbacks = self._rollbacks()
        told = self._told.get(name)
        if told is not None and told.rollbacks != rollbacks and not kind.forgets:
            told = None
        resumed = told is not None
        told = told or _Told(secrets.token_hex(4), rollbacks)
        attempt = f" (rollback {rollbacks})" if rollbacks and not kind.forgets else ""
        tracker = kind()
        first = told.steps.get(TRAINING, 0) + 1
        folder = self._path / name
        tracker.open(TrackedRun(self._path.name + attempt, told.id, resumed, first, folder, self._settings))
        self._open[name], self._told[name] = tracker, told

    @contextmanager
    def _guarded(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # whatever it is, it costs this tracker only
            self._names.remove(name)
            tracker = self._open.pop(name, None)
            with suppress(Exception):
                if tracker is not None:
                    tracker.close()
            _log.warning(
                "the tracker '%s' failed (%s: %s): it is told nothing more by this process; metrics.jsonl is complete",
                *(name, type(error).__name__, " ".join(str(error).split())[:300]),
            )

    @cached_property
    def _told(self) -> dict[str, _Told]:
        """What was told so far; a damaged file counts as nothing told."""
        with suppress(OSError, ValueError, TypeError, AttributeError):
            records = json.loads((self._path / STATE).read_text(encoding="utf-8"))
            return {name: _Told(**record) for name, record in records.items()}
        return {}

    def _save(self) -> None:
        records = {name: asdict(told) for name, told in self._told.items()}
        write_text(self._path / STATE, json.dumps(records, indent=1) + "\n")
