"""Reports in their three forms: the same numbers, texts escaped, nothing from outside."""

import csv
import re

import pytest

from ragen.errors import CheckpointError
from ragen.studies import figure
from ragen.studies.content import Content
from ragen.studies.figure import bands
from ragen.studies.page import html_page
from ragen.studies.report import VERDICT, markdown, report_files


def write(plan, place, folder):
    folder.mkdir(exist_ok=True)
    files = report_files(plan, place, folder)
    for file, text in files.items():
        file.write_text(text)
    return list(files)


UP, DOWN = [0.5] * 20, [1.0] * 8 + [0.0] * 12


@pytest.fixture
def files(plan, place, make_done, tmp_path):
    (first, second), (third, _) = (variant.runs for variant in plan.variants)
    make_done(first, 1, 1, DOWN)
    make_done(second, 1, 3, UP)
    make_done(third, 1, 2, UP)
    return {file.suffix: file for file in write(plan, place, tmp_path / "out")}


def test_four_files_under_the_studys_name_and_size(files):
    assert sorted(file.name for file in files.values()) == [
        "test-tiny.csv",
        "test-tiny.html",
        "test-tiny.md",
        "test-tiny.svg",
    ]


def test_the_markdown_has_a_row_a_variant_with_its_numbers(files):
    text = files[".md"].read_text()
    assert text.startswith("# F3: Filter & &lt;ratio>\n")
    assert "3 of 4 are done; 1 are missing; seeds 0, 1" in text
    rows = [line for line in text.splitlines() if line.startswith("| bandit |")]
    assert rows[0] == "| bandit | 100 | 2 | 4 | 0.500 | [0.000, 1.000] | 0.250, 0.750 |  |  |"
    assert rows[1].startswith("| bandit | 50 | 1 | 4 | 0.500 | [0.150, 0.850] | 0.500 | 0.5 | +0.250 |")
    assert "| bandit | 100 | 2 | 1/2 | [0.09, 0.91] | 11 | 100 |" in rows
    assert "| bandit | 50 | 1 | 0/1 | [0.00, 0.79] |  |  |" in rows
    assert "ragen study run test.yaml --size tiny" in text
    assert "![curves](test-tiny.svg)" in text
    assert "filter.value: 0.5" in text


def test_the_csv_has_all_numbers_in_full(files):
    with files[".csv"].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["outcome"] for row in rows] == [
        name for name in ("success", "start", "collapse", "last:rollout/entropy") for _ in "ab"
    ]
    assert rows[0] | {"mean": "0.5", "by_seed": "0=0.25 1=0.75", "keep": "100", "seeds": "2", "instances": "4"} == rows[0]
    assert rows[1]["difference"] == "0.25"
    assert rows[1]["difference_low"] == ""
    assert rows[4]["by_seed"] == "0=11"


def test_the_page_is_whole_in_itself_and_its_texts_are_escaped(files):
    text = files[".html"].read_text()
    assert "Filter &amp; &lt;ratio&gt;" in text
    assert "<ratio>" not in text
    assert re.findall(r"<script|<link|<iframe|<img|@import|url\(\s*['\"]?http", text) == []
    assert [link for link in re.findall(r"(?:href|src)\s*=\s*[\"']([^\"']*)", text) if not link.startswith("#")] == []
    assert text.count("<svg") == 1
    assert "0.150, 0.850" in text
    assert "success in training" in text


def test_the_same_runs_give_the_same_files(files, plan, place, tmp_path):
    before = {suffix: file.read_bytes() for suffix, file in files.items()}
    write(plan, place, tmp_path / "out")
    assert {suffix: file.read_bytes() for suffix, file in files.items()} == before


WRITTEN = """Does not reproduce: <b>too</b> few seeds.

More `code`.

## A heading

```
## Verdict
```

    indented, and the end"""


@pytest.mark.parametrize("heading", [VERDICT, f"{VERDICT} \t"])
def test_a_verdict_that_a_person_wrote_is_kept_whole_and_stands_in_the_page(files, plan, place, tmp_path, heading):
    head, _, rest = files[".md"].read_text().partition(f"\n{VERDICT}\n")
    assert rest.startswith("\n_Not written yet")
    assert rest.count("\n") == 2  # it is the last section
    files[".md"].write_text(f"{head}\n{heading}\n\n{WRITTEN}\n")
    for _ in range(2):
        write(plan, place, tmp_path / "out")
        assert files[".md"].read_text() == f"{head}\n{VERDICT}\n\n{WRITTEN}\n"
    page = files[".html"].read_text()
    assert "<p>Does not reproduce: &lt;b&gt;too&lt;/b&gt; few seeds.</p>\n<p>More <code>code</code>.</p>" in page


@pytest.mark.parametrize(("text", "said"), [(b"# mine\n", "has no heading '## Verdict'"), (b"\xff", "is not UTF-8")])
def test_a_report_whose_verdict_cannot_be_found_is_not_written_over(files, plan, place, tmp_path, text, said):
    files[".md"].write_bytes(text)
    with pytest.raises(CheckpointError, match=said):
        write(plan, place, tmp_path / "out")
    assert files[".md"].read_bytes() == text


def test_no_text_of_a_study_makes_a_section_a_tag_or_ends_the_settings():
    bad = "a\n\n## Verdict\n<i>|`\n"
    settings = "note: |\n```\n````\n"
    content = Content(bad, [("Question", bad)], "mine", {bad: [[bad], [bad]]}, settings, runs=[[bad], [bad]], figure="")
    text = markdown(content, "a (b).svg")
    assert re.findall("^#.*", text, re.MULTILINE) == [
        "# a ## Verdict &lt;i>&#124;`",
        "## a ## Verdict &lt;i>&#124;`",
        "## Curves",
        "## Settings",
        "## Runs",
        "## Verdict",
    ]
    assert "<" not in text
    assert f"\n`````yaml\n{settings}`````\n" in text
    assert "](a%20%28b%29.svg)" in text
    assert "\n```yaml\nx: 1\n```\n" in markdown(Content("", [], "", {}, "x: 1\n", [[""]], ""), "a.svg")


def test_a_run_that_ended_early_is_told_with_its_steps(plan, place, make_done, tmp_path):
    whole, early = plan.variants[0].runs
    make_done(whole, 1, 1, UP)
    make_done(early, 1, 1, UP[:12])
    text = write(plan, place, tmp_path)[0].read_text()
    assert f"| bandit | 100 | {whole.name}, {early.name} (12 of 20 steps) |" in text


def test_without_a_run_there_is_no_report(plan, place, tmp_path):
    with pytest.raises(CheckpointError, match=r"no run of study.*ragen study run test\.yaml --size tiny"):
        write(plan, place, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_evaluation_is_named(plan, place, make_done, tmp_path):
    run = plan.variants[0].runs[0]
    make_done(run, 1, 1, UP)
    (place.path(run) / "eval" / "after.json").write_text('{"step": 20}')
    with pytest.raises(CheckpointError, match=r"eval/after\.json.*'env' is missing"):
        write(plan, place, tmp_path)


def test_bands_are_mean_and_range_of_the_seeds_that_have_a_value():
    mean, low, high = bands([[1.0, 3.0, None], [3.0]])
    assert mean.tolist() == [2.0, 2.0, 2.0]  # smoothed over the steps so far: 1, 2, 2 and 3
    assert low.tolist() == [1.0, 2.0, 2.0]
    assert high.tolist() == [3.0, 2.0, 2.0]
    assert all(part.size == 0 for part in bands([[]]))


def test_no_text_of_a_report_is_taken_for_html():
    bad = "<i>&"
    table = [[bad], [bad]]
    content = Content(bad, [(bad, bad)], bad, {bad: table}, settings=bad, runs=table, figure="<svg></svg>")
    page = html_page(content)
    assert "<i>" not in page
    assert page.count("&lt;i&gt;&amp;") == 2 + 2 + 1 + 3 + 1 + 2


@pytest.mark.parametrize("steps", [1, 2, 3, 11, 200])
def test_ticks_are_whole_steps_heights_begin_at_zero_and_every_curve_is_seen(plan, place, make_done, monkeypatch, steps):
    drawn = []
    monkeypatch.setattr(figure, "_svg", lambda picture: drawn.append(picture) or "")
    run = plan.variants[0].runs[0]
    values = [0.2 + 0.5 * step / steps for step in range(steps)]
    make_done(run, 1, 3, values, **{"rollout/return_std": values, "update/grad_norm": [1e3 * value for value in values]})
    figure.draw(plan, {run.name: place.record(run)})
    for panel in drawn[0].subfigs[0].axes:
        drawn[0].draw_without_rendering()
        low, high = panel.get_xlim()
        ticks = [tick for tick in panel.get_xticks() if low <= tick <= high]
        assert ticks == [int(tick) for tick in ticks]
        assert 1 <= len(ticks) <= 8
        assert panel.get_ylim()[0] == 0
        (line,) = panel.get_lines()
        assert (line.get_marker() == "o") == (steps < 5)
