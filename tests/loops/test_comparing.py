"""``ragen.compare`` and ``ragen compare``: what is read, what is evaluated, what may not be compared."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import ragen
from ragen.cli.main import main
from ragen.errors import CheckpointError, ConfigError
from ragen.metrics.intervals import paired_score

SMALL: dict[str, Any] = {
    "env": "frozen_lake",
    "eval": {"episodes": 4, "seed": 7, "temperature": 0},
    "rollout.max_new_tokens": 8,
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    """A stored evaluation of the tiny model on four instances."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGEN_CACHE", str(session_cache))
        report = ragen.evaluate("tiny", settings=SMALL, progress=False)
    path = tmp_path_factory.mktemp("stored") / "tiny.json"
    path.write_text(json.dumps(report.to_dict()))
    return path


def changed(stored: Path, name: str, **values: Any) -> Path:
    path = stored.with_name(f"{name}.json")
    path.write_text(json.dumps({**json.loads(stored.read_text()), "model": name, **values}))
    return path


def test_a_model_is_evaluated_on_the_instances_of_the_stored_one(stored: Path) -> None:
    compared = ragen.compare([stored, "tiny"], progress=False)
    first, second = compared.reports
    assert second.instances == first.instances
    assert json.loads(json.dumps(second.settings)) == first.settings
    assert (second.seed, second.temperature) == (7, 0.0)
    assert not second.players  # once is enough
    (pair,) = compared.pairs
    assert pair.success_interval == paired_score(0, 0, 4)


def test_settings_hold_for_all_that_is_evaluated(stored: Path) -> None:
    with pytest.raises(ConfigError, match=r"other instances than .*seed 8 against 7"):
        ragen.compare([stored, "tiny"], {**SMALL, "eval.seed": 8}, progress=False)


@pytest.mark.parametrize(
    ("values", "said"),
    [({"seed": 3}, "seed 3 against 7"), ({"env": "bandit"}, "env bandit against frozen"), ({"settings": {}}, "settings")],
)
def test_other_instances_are_refused(stored: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ragen.compare([stored, changed(stored, "other", **values)], progress=False)


def test_settings_mean_nothing_where_all_is_finished(stored: Path) -> None:
    with pytest.raises(ConfigError, match="mean nothing"):
        ragen.compare([stored, stored], ["--env", "bandit"], progress=False)
    with pytest.raises(ConfigError, match="two models or more"):
        ragen.compare([stored], progress=False)


def test_an_evaluation_directory_is_read_when_it_is_finished(stored: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evals" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"env": {}, "eval": {}, "rollout": {}}')
    (folder / "episodes.jsonl").write_text("")
    with pytest.raises(CheckpointError, match="is not finished"):
        ragen.compare([folder, stored], progress=False)
    (folder / "report.json").write_text(stored.read_text())
    assert ragen.compare([folder, stored], progress=False).pairs[0].n == 4
    (folder / "report.json").write_text("{}")
    with pytest.raises(CheckpointError, match="not the report"):
        ragen.compare([folder, stored], progress=False)


@pytest.mark.parametrize(("name", "value"), [("success", -7), ("episodes", None), ("errors", "x"), ("returns", [["1"]])])
@pytest.mark.parametrize("order", [1, -1])
def test_a_damaged_report_is_named_with_its_field(
    name: str, value: Any, order: int, stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = changed(stored, "broken", **{name: value})
    assert main(["compare", *map(str, [stored, broken][::order])]) == 2
    said = capsys.readouterr().err
    assert f"'{broken}' is not the report of an evaluation ('{name}' is " in said
    assert said.endswith("make the evaluation again\n")


def test_the_command_prints_and_writes_every_side(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    won = changed(stored, "better", outcomes=[[True]] * 4, returns=[[1.0]] * 4, success=1.0)
    out, table = tmp_path / "c.json", tmp_path / "c.csv"
    words = ["compare", str(stored), str(won), str(stored), "--instances", "--json", str(out), "--csv", str(table)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "B better on 4, A on 0, alike on 0 · p = 0.125" in text
    assert "C better on 0, A on 0, alike on 4 · p = 1" in text
    assert "random" in text
    assert "best possible" in text
    rows = list(csv.reader(table.read_text().splitlines()))
    assert rows[0] == ["instance", *(f"{what}_{letter}" for letter in "ABC" for what in ("success", "return"))]
    assert [row[3] for row in rows[1:]] == ["1.0"] * 4
    assert {row[0] for row in rows[1:]} == {str(i) for i in json.loads(stored.read_text())["instances"]}
    told = json.loads(out.read_text())
    assert [pair["wins"] for pair in told["pairs"]] == [4, 0]
    assert len(told["reports"]) == 3
