"""Reference players beside a study's numbers."""

import json
from dataclasses import replace

from tests.studies.conftest import evaluation

from ragen.metrics.evaluation import PlayerScore
from ragen.studies.outcomes import Record
from ragen.studies.references import TITLES, references
from ragen.studies.report import report_files

RANDOM, BEST = PlayerScore(0.25, (0.1, 0.5), 0.2), PlayerScore(1.0, (0.6, 1.0), 1.0)


def record(env="bandit", n=4, **players):
    return Record(env, (), {"before": evaluation(env, 1, n), "after": replace(evaluation(env, 2, n), players=players)})


def test_a_player_is_told_once_for_all_runs_by_environment():
    records = [record(random=RANDOM, optimal=BEST), record(random=RANDOM), record("sokoban", random=BEST)]
    assert references(records) == [
        TITLES,
        ["bandit", "optimal", "4", "1.000", "[0.600, 1.000]"],
        ["bandit", "random", "4", "0.250", "[0.100, 0.500]"],
        ["sokoban", "random", "4", "1.000", "[0.600, 1.000]"],
    ]


def test_scores_that_differ_by_variant_are_told_as_a_range():
    records = [record(random=RANDOM), record(random=BEST), record(n=8, random=RANDOM)]
    assert references(records)[1:] == [["bandit", "random", "4 or 8", "0.250 to 1.000, by variant", ""]]


def test_without_players_the_report_has_no_such_table(plan, place, make_done, tmp_path):
    assert references([record()]) == [TITLES]
    make_done(plan.variants[0].runs[0], 1, 1, [0.5] * 20)
    texts = {file.suffix: text for file, text in report_files(plan, place, tmp_path).items()}
    assert not any("Reference players" in text for text in texts.values())


def test_the_table_stands_in_the_report(plan, place, make_done, tmp_path):
    run = plan.variants[0].runs[0]
    make_done(run, 1, 1, [0.5] * 20)
    (found,) = place.path(run).glob("eval/after.json")
    report = json.loads(found.read_text())
    report["players"] = {"random": {"success": 0.25, "interval": [0.1, 0.5], "task_return": 0.2}}
    found.write_text(json.dumps(report))
    texts = {file.suffix: text for file, text in report_files(plan, place, tmp_path).items()}
    assert "| bandit | random | 4 | 0.250 | [0.100, 0.500] |" in texts[".md"]
    assert "<td>random</td><td>4</td><td>0.250</td>" in texts[".html"]
