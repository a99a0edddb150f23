"""``ragen.train`` and ``ragen.evaluate``: what may be passed, and what happens to it."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch

import ragen
import ragen.api as api
from ragen.config import load_config
from ragen.envs import EnvSettings, Observation, Step
from ragen.errors import ConfigError, RagenError
from ragen.loops.compose import build_world
from ragen.loops.evaluate import few_valid, format_note
from ragen.metrics.evaluation import EvalReport
from ragen.runs.directory import RunDirectory
from ragen.runs.listener import Silent

PRESET = "frozen_lake-starpo-s-grpo-tiny"
QUICK: dict[str, Any] = {
    "model": "tiny",
    "warmup.data": "none",
    "rollout": {"groups": 2, "members": 2, "max_new_tokens": 4},
    "filter.strategy": "none",
    "eval.episodes": 2,
    "steps": 1,
}


EMPTY: dict[str, Any] = dict.fromkeys(("notes", "instances", "outcomes", "returns"), ()) | {
    **dict.fromkeys(("success_interval", "return_interval"), (0.0, 1.0)),
    **dict.fromkeys(("env", "model", "method"), ""),
    **{name: {} for name in ("settings", "players", "endpoint")},
}


class GuessSettings(EnvSettings):
    max_turns: int = 2
    choices: int = 3


class Guess(ragen.Environment):
    settings_class = GuessSettings
    success = False

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        return Observation(f"Which of {self.settings.choices}?")  # type: ignore[attr-defined]

    def step(self, action: str) -> Step:
        return Step("no", 0.0, terminated=False)

    def actions(self) -> tuple[str, ...]:
        return ("one", "two")

    def instructions(self) -> str:
        return "Guess."


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What reaches the training loop, in place of training."""
    calls: list[tuple[Any, Any]] = []
    monkeypatch.setattr(api, "run_training", lambda config, *, env, **rest: calls.append((config, env)))
    return calls


NEVER = "below 0.5: the model may never have been taught this reply format; next: ragen warmup PRESET --model m --env bandit"
LOST = "below 0.5: the run's warm-up was too short, or training has lost the format; next: a new run with more --warmup.d"


@pytest.mark.parametrize(
    ("valid", "trained", "env", "said"),
    [
        (0.49, None, "bandit", NEVER),
        (0.0, {}, "bandit", "below 0.5: the run had no warm-up; next: a new run with --warmup.data format"),
        (0.2, {"warmup.data": "format"}, "bandit", LOST),
        (0.2, {}, "frozen_lake", "below 0.5: the run was trained on bandit, not on frozen_lake; next: train on it"),
        (0.2, {"env.name": "/a/b/x.py:X"}, "bandit", "below 0.5: the run was trained on x.py:X, not on bandit"),
        (0.5, {}, "frozen_lake", None),
        (float("nan"), None, "bandit", None),
    ],
)
def test_few_valid_replies_are_told_with_why_that_may_be_and_what_to_do(
    valid: float, trained: dict[str, Any] | None, env: str, said: str | None
) -> None:
    report = EvalReport.from_dict(dict.fromkeys(EvalReport.__annotations__, 0) | EMPTY | {"valid_format": valid})
    stored = None if trained is None else load_config({"env": {"name": "bandit"}} | trained)
    notes = format_note(report, *few_valid(build_world({"name": env}), stored, "m"))
    assert len(notes) == (said is not None)
    assert said is None or notes[0].startswith(f"valid format is {said}")


def test_env_settings_reach_a_class_of_ones_own_and_the_preset_s_do_not(given: list[tuple[Any, Any]]) -> None:
    ragen.train(PRESET, {"env.choices": 5, "steps": 2}, env=Guess)
    ragen.train(PRESET, ["--env.choices", "5", "--steps", "2"], env=Guess)
    ragen.train(PRESET, {"env": {"choices": 5}, "steps": 2}, env=Guess)
    for config, env in given:
        assert env is Guess
        assert config.env == {"name": given[0][0].env["name"], "choices": 5}
        assert config.env["name"].endswith(":Guess")
        assert config.steps == 2


@pytest.mark.parametrize("settings", [{}, {"env.size": 5}])
def test_an_environment_may_be_passed_by_its_name(given: list[tuple[Any, Any]], settings: dict[str, Any]) -> None:
    ragen.train(PRESET, settings, env="frozen_lake")
    config, env = given[0]
    assert env is None
    assert config == load_config(PRESET, {"env.name": "frozen_lake", **settings})


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"source": None}, "cannot train from None"),
    ({"source": 3}, "cannot train from 3"),
    ({"settings": "steps=3"}, "settings is 'steps=3'"),
    ({"settings": [("steps", 3)]}, "settings is"),
    ({"settings": 3}, "settings is 3"),
    ({"settings": {"env.nosuch": 1}, "env": Guess}, r"unknown setting 'env\.nosuch'"),
    ({"settings": {"env.max_turns": 0}, "env": Guess}, r"env\.max_turns"),
    ({"env": Guess()}, "env is .*a class that extends"),
    ({"env": "frozen_like"}, "did you mean 'frozen_lake'"),
    ({"env": 3}, "env is 3"),
    ({"env": int}, "env is"),
    ({"listener": print}, "listener is .*Silent"),
    ({"listener": object()}, "listener is .*Silent"),
    ({"resume": 3}, "resume is 3"),
    ({"resume": ""}, "resume is ''"),
    ({"resume": "no-such-run"}, "not a run directory"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG)
def test_train_refuses_what_it_cannot_use_with_words(
    arguments: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RagenError, match=words):
        ragen.train(**({"source": PRESET, "progress": False} | arguments))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": None}, "the model is None"),
        ({"model": ""}, "the model is ''"),
        ({"model": " "}, "the model is ' '"),
        *((arguments, words) for arguments, words in WRONG if not {"source", "resume"} & arguments.keys()),
    ],
)
def test_evaluate_refuses_what_it_cannot_use_with_words(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ragen.evaluate(**({"model": "tiny", "progress": False} | arguments))


def test_a_run_on_a_class_of_ones_own_keeps_its_settings_and_finds_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also: progress on the console unless told otherwise, and any mode of torch around the call."""
    settings = QUICK | {"run.root": str(tmp_path), "env.choices": 5}
    with torch.no_grad():
        result = ragen.train(PRESET, settings | {"run.name": "a"}, env=Guess)
        assert not torch.is_grad_enabled()
    assert "update/grad_norm" in result.history[0]
    assert "train" in capsys.readouterr().out
    stored = RunDirectory.open(result.run).config.env
    assert stored["choices"] == 5
    report = ragen.evaluate(result.run, env=Guess, progress=False)
    assert report.settings["choices"] == 5
    with torch.inference_mode():
        again = ragen.train(PRESET, settings | {"steps": 2}, env=Guess, resume=result.run, progress=False)
        assert torch.is_inference_mode_enabled()
    assert again.steps == 2
    assert capsys.readouterr().out == ""


def test_calls_from_several_threads_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = [0], [0]

    def training(config: Any, **rest: Any) -> None:
        inside[0] += 1
        most[0] = max(most[0], inside[0])
        threading.Event().wait(0.01)
        inside[0] -= 1

    monkeypatch.setattr(api, "run_training", training)
    threads = [threading.Thread(target=ragen.train, args=(PRESET,), kwargs={"listener": Silent()}) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
