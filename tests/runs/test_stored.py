"""What a reader opens by name: a run's step, or an evaluation that was kept."""

import json
from pathlib import Path

import pytest
from tests.kept_evaluation import kept, spoken_episode

from ragen.cli.main import main
from ragen.config import load_config
from ragen.episode import EndReason
from ragen.errors import CheckpointError, ConfigError
from ragen.runs.directory import RunDirectory
from ragen.runs.evaluations import EvaluationDirectory
from ragen.runs.stored import env_of, episodes, open_stored

LOST = spoken_episode(3, end=EndReason.ERROR, error="no reply")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_evaluation_is_found_by_path_and_by_name_and_a_run_before_it() -> None:
    kept(Path("evals"), [spoken_episode(1, "I won")])
    for name in ("wise", "evals/wise", Path("evals/wise")):
        assert isinstance(open_stored(name), EvaluationDirectory)
    words = ["--run.root", "runs", "--run.name", "wise"]
    RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", words))
    assert isinstance(open_stored("wise"), RunDirectory)
    assert isinstance(open_stored("evals/wise"), EvaluationDirectory)
    with pytest.raises(CheckpointError, match="'nosuch' is not a run directory"):
        open_stored("nosuch")


def test_what_is_read_is_the_last_of_each_episode_and_the_lost_are_in_no_group() -> None:
    made = kept(Path("evals"), [spoken_episode(1, "no"), spoken_episode(2, "I won"), LOST], planned=4)
    with EvaluationDirectory.begun("evals", "wise", made.config) as again:
        (first, *_) = again.episodes()
        again.add(first)
    read = episodes(open_stored("wise"))
    assert [(item.group, item.trajectory.instance_seed) for item in read.items] == [(0, 1), (1, 2), (None, 3)]
    assert (read.step, read.groups_a_step, env_of(made)["name"]) == (None, None, "frozen_lake")
    assert read.about == "evals/wise · evaluation of wise at http://here/v1"
    with pytest.raises(ConfigError, match="has no training steps: leave --step out"):
        episodes(made, 3)


def test_an_evaluation_of_which_nothing_was_played_says_so() -> None:
    with pytest.raises(CheckpointError, match="holds no episode yet: repeat the evaluation's command"):
        episodes(kept(Path("evals"), [], planned=2))


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"env": 1, "eval": {}, "rollout": {}}'])
def test_a_damaged_evaluation_is_named(text: str) -> None:
    kept(Path("evals"), [spoken_episode(1, "I won")])
    Path("evals/wise/config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        open_stored("wise")


def test_the_commands_read_it(capsys: pytest.CaptureFixture[str]) -> None:
    kept(Path("evals"), [spoken_episode(1, "I go", "I won"), spoken_episode(2, "no"), LOST])
    assert main(["show", "wise", "--failed", "--worst"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("evals/wise · evaluation of wise at http://here/v1 · 3 trajectories, lowest return first\n")
    assert ("⟦no⟧" in said, "⟦I won⟧" in said, "lost: no reply" in said) == (True, False, True)
    assert main(["show", "wise", "--json", "--limit", "0"]) == 0
    assert [json.loads(line)["group"] for line in capsys.readouterr().out.splitlines()] == [0, 1, None]
    assert main(["export", "wise", "-o", "out.jsonl", "--success"]) == 0
    assert "1 row, 1 episode of an evaluation (sharegpt)\nwarm up on it: ragen warmup PRESET" in capsys.readouterr().out
    (row,) = map(json.loads, Path("out.jsonl").read_text().splitlines())
    assert [message["value"] for message in row["conversations"]] == ["Walk.", "I go", "Walk.", "I won"]
    for words, named in ((["--trained"], "--trained"), (["--steps", "3"], "--steps")):
        assert main(["export", "wise", "-o", "more.jsonl", *words]) == 2
        assert f"leave {named} out" in capsys.readouterr().err
    assert main(["show", "wise", "--group", "7"]) == 2
    assert "no such trajectory among the 3: groups are 0, 1, members 0 to 0, and 1 succeeded" in capsys.readouterr().err
