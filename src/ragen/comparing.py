"""``ragen.compare(...)``: models, runs and finished evaluations on the same instances, in pairs."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen.api import EnvironmentLike, Overrides, Source, evaluate, with_env
from ragen.config import load_config
from ragen.config.load import parse_overrides
from ragen.errors import CheckpointError, ConfigError
from ragen.loops.compose import world_of
from ragen.metrics.comparison import Comparison, compare_reports
from ragen.metrics.evaluation import EvalReport
from ragen.runs.disk import read_json
from ragen.runs.evaluations import EvaluationDirectory, is_evaluation, read_report
from ragen.runs.listener import Listener
from ragen.runs.models import find_model

SHARED = ("env", "eval")  # the sections that all sides have in common; rollout settings are each run's own


@dataclass(frozen=True, slots=True)
class Compared:
    """The evaluations in the order given, and each later one against the first."""

    reports: tuple[EvalReport, ...]
    pairs: tuple[Comparison, ...]


def compare(
    models: Sequence[str | Path],
    settings: Overrides | None = None,
    *,
    source: Source | None = None,
    env: EnvironmentLike | None = None,
    players: bool = True,
    progress: bool = True,
    listener: Listener | None = None,
) -> Compared:
    """Evaluate two or more models on the same instances and compare each with the first, instance by instance.

    Args:
        models: of each a run, a checkpoint or model directory, a model's name, an evaluation directory (``evals/NAME``), or
            a report that ``ragen eval --json`` wrote. Finished evaluations are read, the others made.
        settings, source, env: as in ``evaluate``, for those that are made. What is not said of ``env`` and ``eval`` is as in
            the first evaluation or run among ``models``; the other settings are each run's own.
        players: play the reference players, once.
        progress, listener: as in ``evaluate``.

    Raises ConfigError where the evaluations are not of the same instances.
    """
    if len(models) < 2:
        raise ConfigError(f"a comparison needs two models or more, got {len(models)}")
    stored = [_stored_report(model) for model in models]
    made = [model for model, report in zip(models, stored, strict=True) if report is None]
    words = with_env(settings, env)
    if (words or source is not None) and not made:
        raise ConfigError("all of these are finished evaluations: settings mean nothing for them, leave them out")
    shared, own = _common_settings(stored, made, source, words) if made else ({}, {})
    reports: list[EvalReport] = []
    for model, report in zip(models, stored, strict=True):
        found = report or evaluate(
            model,
            source,
            {**own, **shared},
            env=env,
            players=players and not any(r.players for r in reports),
            progress=progress,
            listener=listener,
        )
        _check_same(reports[0] if reports else found, found, str(model))
        reports.append(found)
    try:
        return Compared(tuple(reports), tuple(compare_reports(reports[0], report) for report in reports[1:]))
    except ValueError as error:
        raise ConfigError(f"these cannot be compared: {error}") from None


def _stored_report(model: str | Path) -> EvalReport | None:
    """The report of a finished evaluation, or None for something that is to be evaluated."""
    path = Path(model)
    if not is_evaluation(path):
        return None
    if path.is_file():
        advice = "make the evaluation again"
        return read_report(read_json(path, advice), f"'{path}'", advice)
    report = EvaluationDirectory.open(path).report()
    if report is None:
        raise CheckpointError(f"the evaluation '{path}' is not finished: repeat its command to go on, then compare")
    return report


def _common_settings(
    stored: Sequence[EvalReport | None], made: Sequence[str | Path], source: Source | None, words: Overrides
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ``env`` and ``eval`` settings of all sides, whole; and what was said beside them."""
    given = dict(words.items() if isinstance(words, Mapping) else parse_overrides(words))
    report = next((report for report in stored if report is not None), None)
    if source is not None:
        basis = source
    elif report is not None:
        basis = {"env": {"name": report.env, **report.settings}, "eval": _asked(report)}
    else:
        runs = (find_model(model)[1] for model in made)
        run = next((config for config in runs if config is not None), None)
        basis = {} if run is None else {name: run.model_dump(mode="json")[name] for name in SHARED}
    config = load_config(basis, given)
    world = world_of(config)
    shared = {"env": {**world.spec, **world.settings}, "eval": config.eval.model_dump(mode="json")}
    return shared, {key: value for key, value in given.items() if key.partition(".")[0] not in SHARED}


def _asked(report: EvalReport) -> dict[str, Any]:
    """What an evaluation was asked for; a temperature that was left to an endpoint says nothing to others."""
    asked = {name: getattr(report, name) for name in ("episodes", "samples", "temperature", "seed")}
    return {name: value for name, value in asked.items() if not math.isnan(value)}


def _check_same(first: EvalReport, other: EvalReport, name: str) -> None:
    """Raise ConfigError unless both were made in the same environment on instances of one seed."""
    for what in ("env", "settings", "seed"):
        one, two = _plain(getattr(first, what)), _plain(getattr(other, what))
        if one != two:
            raise ConfigError(
                f"'{name}' was evaluated on other instances than '{first.model}' ({what} {two} against {one}): evaluate "
                "both with the same --env settings and --seed"
            )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str, sort_keys=True))
