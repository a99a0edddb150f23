"""A cache that all tests of the loops share: the tiny model is made and warmed up once."""

import os
from pathlib import Path
from typing import Any

import pytest

from ragen.envs import Environment, EnvSettings, Step
from ragen.models import tiny


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of the loops; the worker processes of pytest-xdist share it."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return tmp_path_factory.getbasetemp().parent / "ragen-cache"
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGEN_CACHE", str(session_cache))
    return session_cache


@pytest.fixture(scope="session")
def mini(save_llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the tokenizer of ``tiny`` and a tenth of its work: for tests of the loops that need not learn."""
    return save_llama(
        tmp_path_factory.mktemp("mini"), tiny.build_tokenizer(tiny.texts()), hidden_size=64, intermediate_size=128
    )


class OneWord(Environment):
    """One turn of one action, which is the only one; subclasses say how it begins."""

    reward = 0.0

    def __init__(self) -> None:
        super().__init__(EnvSettings(max_turns=1, max_actions=1, max_actions_per_turn=1))

    @property
    def success(self) -> bool:
        return False

    def step(self, action: str) -> Step:
        return Step("done", self.reward, terminated=True)

    def actions(self) -> tuple[str, ...]:
        return ("yes",)

    def instructions(self) -> str:
        return "Answer."
