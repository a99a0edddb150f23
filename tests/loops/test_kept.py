"""A local model's evaluation that is kept: the same as one that is not, gone on with where it was stopped."""

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.loops.conftest import OneWord

import ragen
import ragen.loops.evaluate as loop
from ragen.cli.main import main
from ragen.envs import Observation
from ragen.errors import CheckpointError, EnvironmentFault
from ragen.rollout.collect import collect
from ragen.runs.evaluations import EvaluationDirectory
from ragen.runs.events import plain
from ragen.runs.listener import Silent

SETTINGS: dict[str, Any] = {
    "env": "frozen_lake",
    "eval": {"episodes": 3, "samples": 2, "batch": 2},
    "rollout": {"max_new_tokens": 4},
}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def evaluate(model: Path, settings: dict[str, Any] | None = None, **more: Any) -> Any:
    return ragen.evaluate(model, settings=SETTINGS | (settings or {}), progress=False, **more)


class Stops(Silent):
    """Ctrl-C when so many episodes have ended."""

    def __init__(self, after: int) -> None:
        self.left = after

    def on_progress(self, done: int) -> None:
        self.left -= done
        if self.left <= 0:
            raise KeyboardInterrupt


def test_a_stopped_evaluation_goes_on_with_what_it_lacks(mini: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate(mini)
    assert not Path("evals").exists()
    with pytest.raises(KeyboardInterrupt, match="kept in evals/e are 4 of 6 episodes; the same command goes on"):
        evaluate(mini, name="e", listener=Stops(6))
    lines = Path("evals/e/episodes.jsonl").read_text().splitlines()
    asked: list[int] = []

    def counting(sampler: Any, renderer: Any, make: Any, specs: Any, **rest: Any) -> Any:
        asked.append(len(specs))
        return collect(sampler, renderer, make, specs, **rest)

    monkeypatch.setattr(loop, "collect", counting)

    def told(report: Any) -> Any:
        return json.loads(json.dumps(plain(report.to_dict())))

    assert told(evaluate(mini, name="e")) == told(whole)
    assert Path("evals/e/episodes.jsonl").read_text().splitlines()[:4] == lines
    assert told(evaluate(mini, name="e")) == told(whole)
    assert asked == [2, 0]
    kept = EvaluationDirectory.open(Path("evals/e"))
    assert told(kept.report()) == told(whole)
    assert [episode.place for episode in kept.episodes()] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"eval": SETTINGS["eval"] | {"seed": 3}}, "eval.seed was 1000, now 3"),
        ({"rollout": {"max_new_tokens": 5}}, "rollout.max_new_tokens was 4, now 5"),
        ({"rollout": {"max_new_tokens": 4, "force_think": False}}, "rollout.force_think was true, now false"),
        ({"model.dtype": "bfloat16"}, 'model.dtype was "float32", now "bfloat16"'),
    ],
)
def test_other_settings_or_weights_are_another_evaluation(mini: Path, settings: dict[str, Any], told: str) -> None:
    evaluate(mini, name="e")
    with pytest.raises(CheckpointError, match=f"holds an evaluation with other settings \\({told}"):
        evaluate(mini, settings, name="e")
    evaluate(mini, {"eval": SETTINGS["eval"] | {"batch": 3}}, name="e")  # says nothing of the results


def test_weights_that_were_written_anew_are_others(mini: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in mini.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    evaluate(copy, name="e")
    weights = next(copy.glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes())
    with pytest.raises(CheckpointError, match=r"model\.changed was "):
        evaluate(copy, name="e")


def test_a_broken_environment_leaves_nothing_that_would_stay_broken(mini: Path) -> None:
    class Breaks(OneWord):
        seen: ClassVar[list[int]] = []
        broken = True

        def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
            Breaks.seen.append(instance_seed)
            if Breaks.broken and len(set(Breaks.seen)) > 1:  # not at the trial before anything long
                raise ValueError("boom")
            return Observation("Say yes.")

    with pytest.raises(EnvironmentFault, match="boom"):
        evaluate(mini, {"env": {}}, env=Breaks, name="e")
    assert Path("evals/e/episodes.jsonl").read_text() == ""
    Breaks.broken = False
    assert evaluate(mini, {"env": {}}, env=Breaks, name="e").episodes == 3


def test_the_command_keeps_it_and_others_open_it(mini: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["eval", str(mini), "--env", "frozen_lake", "--episodes", "2", "--rollout.max_new_tokens", "4"]
    assert main([*words]) == 0
    assert "Nothing of this is stored: --name NAME keeps the episodes" in capsys.readouterr().out
    assert main([*words, "--name", "mine"]) == 0
    assert "Nothing of this is stored" not in capsys.readouterr().out
    assert main(["show", "mine", "--limit", "1"]) == 0
    said = capsys.readouterr().out
    assert f"evals/mine · evaluation of {mini} · 2 trajectories" in said
    assert "<|im_start|>user" in said  # by its own tokenizer
    assert main(["compare", "evals/mine", "evals/mine"]) == 0
    assert main(["export", "mine", "-o", "mine.jsonl"]) == 0
    row = json.loads(Path("mine.jsonl").read_text().splitlines()[0])
    assert row["tokenizer"]
    assert len(row["reply_token_ids"][0]) == 4
