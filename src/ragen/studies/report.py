"""A study's report: Markdown with a picture beside it, CSV, and a page that needs nothing but itself."""

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from ragen.errors import CheckpointError
from ragen.studies.content import Content, Table, build
from ragen.studies.grid import Plan, command
from ragen.studies.page import html_page
from ragen.studies.place import Place
from ragen.studies.summary import Row, summarise

VERDICT = "## Verdict"
_HEADING = re.compile(r"^##[ \t]+Verdict[ \t]*$", re.MULTILINE)
NO_VERDICT = "_Not written yet: a person looks at the numbers and writes here what they say. Written text is kept._"


def report_files(plan: Plan, place: Place, folder: Path) -> dict[Path, str]:
    """The files of the report in ``folder``: ``STUDY-SIZE.md``, ``.csv``, ``.svg`` and ``.html``, each with its text.

    The verdict in the Markdown that lies there is kept.

    Raises CheckpointError where no run is done, and where that Markdown's verdict cannot be found.
    """
    runs = {name: run for name, run in plan.runs().items() if place.state(run) == "done"}
    if not runs:
        raise CheckpointError(
            f"no run of study '{plan.name}', size {plan.size}, is done in '{place.runs}': "
            + command(plan, "run", place.root)
        )
    records = {name: place.record(run) for name, run in runs.items()}
    rows = summarise(plan, records)
    stem = f"{Path(plan.name).stem}-{plan.size}"
    origins = [place.origin(run) for run in runs.values()]
    content = build(plan, records, rows, origins, _verdict(folder / f"{stem}.md"))
    return {
        folder / f"{stem}.md": markdown(content, f"{stem}.svg"),
        folder / f"{stem}.csv": _csv(plan, rows),
        folder / f"{stem}.svg": content.figure,
        folder / f"{stem}.html": html_page(content),
    }


def _verdict(file: Path) -> str:
    """The text from ``## Verdict``, the last section, to the end of an earlier report.

    Raises CheckpointError where there is a report without that heading: what a person wrote into it would be lost.
    """
    if not file.is_file():
        return NO_VERDICT
    try:
        text = file.read_text(encoding="utf-8")
    except ValueError as error:
        raise CheckpointError(f"'{file}' is not UTF-8 ({error}): store it so, or move it away (mv)") from None
    heading = _HEADING.search(text)
    if heading is None:
        raise CheckpointError(
            f"'{file}' has no heading '{VERDICT}', from which on its text is kept: put it above that text, or move the file "
            "away (mv)"
        )
    return text[heading.end() :].strip("\n") or NO_VERDICT


def markdown(content: Content, figure: str) -> str:
    """The report as Markdown; ``figure`` is the name of the picture beside it.

    The verdict comes last, as it was written; all other texts are on one line and hold no HTML.
    """
    lines = [f"# {_plain(content.title)}", "", *(f"- **{what}**: {_plain(said)}" for what, said in content.about), ""]
    for title, table in content.tables.items():
        lines += [f"## {_plain(title)}", "", *_markdown_table(table), ""]
    fence = "`" * (1 + max(2, *map(len, re.findall("`+", content.settings)), 0))  # longer than any in the text
    lines += ["## Curves", "", f"![curves]({quote(figure)})", ""]
    lines += ["## Settings", "", f"{fence}yaml", content.settings.rstrip(), fence, ""]
    lines += ["## Runs", "", *_markdown_table(content.runs), ""]
    return "\n".join([*lines, VERDICT, "", content.verdict, ""])


def _markdown_table(table: Table) -> list[str]:
    lines = ["| " + " | ".join(_plain(cell) for cell in line) + " |" for line in table]
    return [lines[0], "|---" * len(table[0]) + "|", *lines[1:]]


def _plain(text: str) -> str:
    """One line that neither ends a cell of a table nor begins a tag."""
    return " ".join(text.replace("|", "&#124;").replace("<", "&lt;").split())


def _csv(plan: Plan, rows: Mapping[str, Sequence[Row]]) -> str:
    """One line a variant and outcome, numbers in full; the values by seed as SEED=VALUE."""
    axes = list(plan.study.axes)
    titles = ["study", "size", *axes, "outcome", "kind", "seeds", "instances", "mean", "low", "high", "method", "paper"]
    titles += ["difference", "difference_low", "difference_high", "by_seed"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(titles)
    for row in (row for each in rows.values() for row in each):
        numbers = (row.mean, *row.interval)
        gaps = (row.difference, *row.difference_interval)
        writer.writerow(
            [
                *(plan.name, plan.size, *row.variant.values.values(), row.outcome.name, row.outcome.kind, row.seeds),
                row.instances,
                *map(_number, numbers),
                *(row.method, row.paper, *map(_number, gaps)),
                " ".join(f"{seed}={value!r}" for seed, value in row.values.items()),
            ]
        )
    return out.getvalue()


def _number(value: float | None) -> str:
    return repr(value) if value is not None and math.isfinite(value) else ""
