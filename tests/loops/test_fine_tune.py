"""A warm-up that is interrupted or killed loses nothing that was kept, and ends with the weights of an unbroken one."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ragen.config import load_config
from ragen.config.schema import Config
from ragen.loops import fine_tune, warmup
from ragen.loops.compose import world_of
from ragen.runs.listener import Silent

BATCHES = 6


class Pressing(Silent):
    """Hears the messages, and calls ``press`` after a number of batches."""

    def __init__(self, after: int = 0, press: Callable[[], None] = lambda: None) -> None:
        self.after, self.press, self.batches, self.planned = after, press, 0, 0
        self.messages: list[str] = []

    def on_phase(self, name: str, total: int) -> None:
        self.planned = total

    def on_progress(self, done: int) -> None:
        self.batches += done
        if self.batches == self.after:
            self.press()

    def on_message(self, text: str) -> None:
        self.messages.append(text)


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def killed() -> None:
    raise SystemExit


@pytest.fixture
def config(mini: Path) -> Config:
    warm_up = {"data": "format", "demonstrations": 12, "batch": 4, "epochs": 2, "learning_rate": 1e-3}
    return load_config(
        {"preset": "bandit-starpo-grpo"}, {"model.name": str(mini), "model.dtype": "float32", "warmup": warm_up}
    )


def warmed(config: Config, cache: Path, listener: Silent, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGEN_CACHE", str(cache))
    return warmup.starting_model(config, world_of(config), frozenset(), listener)


def weights(path: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(path / "model.safetensors"))


def kept_in(cache: Path) -> list[Path]:
    return list((cache / "warmups").glob(".*.unfinished"))


@pytest.mark.parametrize(("press", "error"), [(interrupt, KeyboardInterrupt), (killed, SystemExit)])
def test_an_interrupted_warm_up_goes_on_to_the_same_weights(
    press: Callable[[], None],
    error: type[BaseException],
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = warmed(config, tmp_path / "whole", Pressing(), monkeypatch)
    if press is killed:
        monkeypatch.setattr(fine_tune, "SAVE_EVERY_S", 0.0)
    broken = tmp_path / "broken"
    first = Pressing(4, press)
    with pytest.raises(error) as stopped:
        warmed(config, broken, first, monkeypatch)
    kept = 4 if press is interrupt else 3  # a kill comes before the fourth is kept
    assert first.planned == BATCHES
    assert len(kept_in(broken)) == 1
    assert (f"4 of {BATCHES} batches of the warm-up are done and kept" in str(stopped.value)) is (press is interrupt)
    second = Pressing()
    made = warmed(config, broken, second, monkeypatch)
    assert f"goes on after {kept} of {BATCHES} batches" in second.messages[0]
    assert second.batches == second.planned == BATCHES - kept
    assert made.name == whole.name
    mine, other = weights(made), weights(whole)
    assert mine.keys() == other.keys()
    assert all(torch.equal(mine[name], other[name]) for name in mine)
    assert kept_in(broken) == []


def test_damaged_leftovers_cost_nothing_but_time(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        warmed(config, tmp_path, Pressing(2, interrupt), monkeypatch)
    (state,) = kept_in(tmp_path)[0].glob("step-*/optimizer.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    again = Pressing()
    assert warmed(config, tmp_path, again, monkeypatch).is_dir()
    assert again.planned == BATCHES


def test_ctrl_c_in_the_last_batch_stops_too(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        warmed(config, tmp_path, Pressing(BATCHES, interrupt), monkeypatch)
    rest = Pressing()
    assert warmed(config, tmp_path, rest, monkeypatch).is_dir()
    assert rest.planned == 0
