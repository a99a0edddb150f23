"""A small study, and run directories made up by hand."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ragen.metrics.evaluation import EvalReport
from ragen.metrics.intervals import wilson
from ragen.runs.directory import RunDirectory
from ragen.studies.grid import Plan, StudyRun, plan_study
from ragen.studies.place import Place
from ragen.studies.schema import Study, parse_study

TEXT = """
title: Filter & <ratio>
finding: F3
question: Does filtering delay collapse?
paper: It does.
settings: {eval.episodes: 4}
axes:
  environment: [bandit, bandit-rev]
  keep:
    100: {filter.strategy: none}
    50: {filter.strategy: top_fraction, filter.value: 0.5}
baseline: {keep: 100}
rows: environment
outcomes: [success, start, collapse, "last:rollout/entropy"]
numbers:
  - {environment: bandit, keep: 100, collapse: 100}
  - {keep: 50, success: 0.5}
sizes:
  tiny:
    preset: "{environment}-starpo-grpo-tiny"
    settings: {steps: 20}
    axes: {environment: [bandit]}
    seeds: 2
  other:
    preset: "{environment}-starpo-grpo-tiny"
    axes:
      environment:
        bandit-rev: {steps: 7}
        bandit:
      keep: {50: {filter.value: 0.3, loss: {clip_high: 0.28}}}
    seeds: [3, 5, 8]
"""


@pytest.fixture
def study() -> Study:
    return parse_study(TEXT, "test.yaml")


@pytest.fixture
def plan(study: Study) -> Plan:
    return plan_study(study, "test.yaml")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "studies")


def evaluation(env: str, wins: int, n: int = 4) -> EvalReport:
    return EvalReport(
        env=env,
        settings={},
        model="",
        episodes=n,
        samples=1,
        temperature=0.5,
        seed=1000,
        success=wins / n,
        success_interval=wilson(wins, n),
        total_return=0.0,
        return_interval=(0.0, 0.0),
        task_return=0.0,
        method="",
        valid_format=1.0,
        turns=1.0,
        tokens=1.0,
        errors=0,
        instances=tuple(range(n)),
        outcomes=tuple((i < wins,) for i in range(n)),
    )


@pytest.fixture
def make_done(place: Place) -> Callable[..., None]:
    """``make(run, wins_before, wins_after, success=[…])``: the directory of a run that is done, with these numbers."""

    def make(run: StudyRun, before: int, after: int, success: Sequence[float], **metrics: Any) -> None:
        opened = RunDirectory(place.path(run), run.config)
        opened.write_config()
        for number, value in enumerate(success):
            others = {name: values[number] for name, values in metrics.items()}
            opened.append_metrics(number + 1, {"rollout/success": value, "rollout/entropy": 1.0, **others})
        env = str(run.config.env["name"])
        opened.write_eval("before", 0, evaluation(env, before).to_dict())
        opened.write_eval("after", len(success), evaluation(env, after).to_dict())
        opened.write_provenance(threads=1)
        place.finish(run, 60.0, keep_checkpoints=False)

    return make
