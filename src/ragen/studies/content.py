"""What a study's report says, whatever its form."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ragen.config.yaml_text import dump_yaml
from ragen.studies.figure import draw
from ragen.studies.grid import Plan, StudyRun, command, settings_of
from ragen.studies.outcomes import Record
from ragen.studies.references import references
from ragen.studies.summary import Interval, Row
from ragen.wording import counted

Table = list[list[str]]
INTERVALS = (
    "Intervals are 95 %. Rates and numbers: Student's t over the seeds; where there is one seed, or all seeds agree, "
    "a rate has the interval of one run's fixed instances and a number has none. Events: the seeds in which it happened of "
    "those run, with Wilson's interval, and the steps. Differences: variant − baseline, paired by seed, t over the pairs. "
    "All runs share the same evaluation instances: intervals over seeds say nothing about other instances."
)
REFERENCES = "Reference players: success on the same instances"


@dataclass(frozen=True, slots=True)
class Content:
    """What the report says, whatever its form. Tables begin with their titles; ``verdict`` is a person's."""

    title: str
    about: Sequence[tuple[str, str]]
    verdict: str
    tables: Mapping[str, Table]
    settings: str
    runs: Table
    figure: str


def build(
    plan: Plan,
    records: Mapping[str, Record],
    rows: Mapping[str, Sequence[Row]],
    origins: Sequence[Mapping[str, Any]],
    verdict: str,
) -> Content:
    """The report of what is done: ``records`` and ``rows`` by name, ``origins`` of the runs, the person's verdict."""
    study, total = plan.study, len(plan.runs())
    players = references(records.values())
    missing = "" if len(records) == total else f"; {total - len(records)} are missing"
    about = [
        ("Question", study.question),
        ("The paper", study.paper),
        ("Size", f"{plan.size}. {study.sizes[plan.size].note}".strip()),
        ("Runs", f"{len(records)} of {total} are done{missing}; seeds {', '.join(map(str, plan.seeds))}"),
        ("Made with", _origin(origins)),
        ("Repeat", f"`{command(plan, 'run')}`"),
        ("Intervals", INTERVALS),
    ]
    return Content(
        title=f"{study.finding + ': ' if study.finding else ''}{study.title}",
        about=[(what, said) for what, said in about if said],
        verdict=verdict,
        tables={f"{name}: {each[0].outcome.about}": _table(plan, each) for name, each in rows.items() if each}
        | ({REFERENCES: players} if players[1:] else {}),
        settings=dump_yaml(settings_of(plan)),
        runs=[[*study.axes, "directories"], *_directories(plan, records)],
        figure=draw(plan, records),
    )


def _table(plan: Plan, rows: Sequence[Row]) -> Table:
    """One row a variant; columns that would be empty are left out."""
    event = rows[0].outcome.kind == "step"
    what = ["happened", "95 %", "at steps"] if event else ["mean", "95 %", "each seed"]
    table = [[*plan.study.axes, "seeds", "n", *what, "paper", "to baseline"]]
    for row in rows:
        form = ".3f" if row.outcome.kind == "rate" else ".4g"
        seeds = ", ".join(format(value, ".4g" if event else form) for value in row.values.values())
        mean = f"{len(row.values)}/{row.seeds}" if event else format(row.mean, form)
        difference = (
            "" if row.difference is None else f"{row.difference:+{form}} {_span(row.difference_interval, '+' + form)}"
        )
        interval = _span(row.interval, ".2f" if event else form)
        n = "" if row.instances is None else str(row.instances)
        table.append([*row.variant.values.values(), str(row.seeds), n, mean, interval, seeds, row.paper, difference.strip()])
    kept = [column for column in range(len(table[0])) if any(line[column] for line in table[1:])]
    return [[line[column] for column in kept] for line in table]


def _span(interval: Interval, form: str) -> str:
    return f"[{interval[0]:{form}}, {interval[1]:{form}}]" if math.isfinite(interval[0]) else ""


def _directories(plan: Plan, records: Mapping[str, Record]) -> Table:
    return [
        [
            *variant.values.values(),
            ", ".join(_directory(run, records[run.name]) for run in variant.runs if run.name in records),
        ]
        for variant in plan.variants
    ]


def _directory(run: StudyRun, record: Record) -> str:
    """The run's name, and how many steps it did where it ended early (every group flat)."""
    early = len(record.steps) < run.config.steps
    return run.name + (f" ({len(record.steps)} of {counted(run.config.steps, 'step')})" if early else "")


def _origin(origins: Sequence[Mapping[str, Any]]) -> str:
    """Versions, machine and time of the runs in one line; several where they differ."""

    def each(values: Sequence[Any]) -> str:
        return " and ".join(dict.fromkeys(str(value) for value in values if value))

    commits = [
        git["commit"][:10] + (" with changes" if git["changed_files"] else "") for o in origins if (git := o.get("git"))
    ]
    versions = [o.get("versions", {}) for o in origins]
    parts = {
        "ragen-rl": each([v.get("ragen-rl") for v in versions]),
        "commit": each(commits),
        "torch": each([v.get("torch") for v in versions]),
        "on": each([o.get("cpu") for o in origins]),
        "threads a run:": each([o.get("threads") for o in origins]),
    }
    hours = sum(o["seconds"] for o in origins) / 3600
    return ", ".join(f"{what} {said}" for what, said in parts.items() if said) + f"; {hours:.2f} hours of runs in all"
