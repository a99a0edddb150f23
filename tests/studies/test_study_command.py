"""`ragen study` from end to end: a small study of the tiny policy, and what mistakes are told."""

import json

import pytest

from ragen.cli.main import main
from ragen.studies.grid import plan_study
from ragen.studies.schema import load_study, shipped

SMALL = """
title: Two filters
question: Does it run?
axes:
  keep:
    all: {filter.strategy: none}
    half: {filter.strategy: soft}
baseline: {keep: all}
outcomes: [success, collapse, "mean:rollout/entropy"]
sizes:
  tiny:
    preset: bandit-starpo-grpo-tiny
    settings:
      steps: 2
      loss.kl_coef: 0.0
      rollout: {groups: 2, members: 3, max_new_tokens: 12}
      warmup: {demonstrations: 32, epochs: 1}
      eval: {episodes: 4}
    seeds: 2
"""


@pytest.mark.e2e
def test_a_study_runs_is_skipped_when_done_and_is_reported(tmp_path, monkeypatch, capsys, ragen_cache):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.yaml").write_text(SMALL)
    assert main(["study", "run", "two.yaml", "--workers", "2"]) == 0
    said = capsys.readouterr().out
    assert "4 to run; 2 side by side" in said
    assert "4 runs: 4 done" in said
    assert said.endswith("report: ragen study report two.yaml --size tiny\n")
    runs = plan_study(load_study("two.yaml"), "two.yaml").runs()
    for name in runs:
        folder = tmp_path / "studies" / "runs" / name
        assert len((folder / "metrics.jsonl").read_text().splitlines()) == 2
        assert {file.name for file in (folder / "eval").iterdir()} == {"before.json", "after.json"}
        assert not (folder / "checkpoints").exists()
        assert json.loads((folder / "done.json").read_text())["seconds"] > 0
    assert len(list((ragen_cache / "warmups").iterdir())) == 2  # one a seed, whatever the variants

    assert main(["study", "run", "two.yaml"]) == 0
    assert "4 done before" in capsys.readouterr().out
    assert main(["study", "list", "two.yaml"]) == 0
    assert capsys.readouterr().out.count("\ndone   ") == 4
    assert main(["study", "report", "two.yaml", "--out", "docs"]) == 0
    text = (tmp_path / "docs" / "two-tiny.md").read_text()
    assert "4 of 4 are done" in text
    assert "| half | 2 | 0/2 |" in text


def test_the_list_names_every_study_with_its_finding(capsys):
    assert main(["study", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(shipped())]] == shipped()
    assert "F3" in next(line for line in lines if line.startswith("filter "))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study"], "ACTION"),
        (["study", "rnu", "filter"], "did you mean 'run'?"),
        (["study", "run"], "STUDY"),
        (["study", "run", "fliter"], "did you mean 'filter'"),
        (["study", "run", "filter", "--size", "tinny"], "did you mean 'tiny'"),
        (["study", "run", "filter", "--seeds", "0"], "at least 1"),
        (["study", "run", "filter", "--workers", "x"], "at least 1"),
        (["study", "run", "none.yaml"], "cannot read 'none.yaml'"),
        (["study", "report", "filter"], "ragen study run filter --size tiny"),
    ],
)
def test_a_mistake_is_told_and_leaves_nothing(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_study_that_fails_tells_where_and_ends_with_1(tmp_path, monkeypatch, capsys):
    from ragen.studies import runner

    def start(words, log):
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("error: no model\n")

        class Ended:
            def poll(self):
                return 2

        return Ended()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "start_process", start)
    monkeypatch.setattr(runner, "POLL_S", 0.0)
    (tmp_path / "two.yaml").write_text(SMALL)
    assert main(["study", "run", "two.yaml", "--seeds", "1", "--root", "else where", "--workers", "2"]) == 1
    said = capsys.readouterr().out
    again = "ragen study run two.yaml --size tiny --seeds 1 --root 'else where'"
    assert said.endswith(f"again:  {again} --workers 2\n")
    assert main(["study", "report", "two.yaml", "--seeds", "1", "--root", "else where"]) == 2
    assert again in capsys.readouterr().err
    assert said.count("no model") == 4  # while it runs, and at the end
    assert "2 failed" in said
    assert "else where/logs/bandit-starpo-grpo-seed0" in said


def test_what_goes_on_is_the_command_that_was_given(tmp_path, monkeypatch, capsys):
    """Every option of ``run``, whatever it is called, stands in the line that a stopped study prints."""
    import argparse
    import shlex

    from ragen.cli import study
    from ragen.cli.arguments import Parser
    from ragen.studies import runner

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "run_study", lambda *_, **__: runner.StudyResult((), (), (), interrupted=True))
    (tmp_path / "two.yaml").write_text(SMALL.replace("seeds: 2", "seeds: 2\n  other: {preset: bandit-starpo-grpo-tiny}"))
    parser = Parser()
    study.configure(parser)
    (actions,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    options = {action.option_strings[0] for action in actions.choices["run"]._actions if action.option_strings} - {"-h"}
    given = {"--size": "other", "--seeds": "1", "--root": "else where", "--workers": "3"}
    assert set(given) == options
    words = ["study", "run", "two.yaml", *(word for pair in given.items() for word in pair)]
    assert main(words) == 130
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("go on:"))
    again = shlex.split(line.removeprefix("go on:"))[1:]
    assert parser.parse_args(again[1:]) == parser.parse_args(words[1:])
