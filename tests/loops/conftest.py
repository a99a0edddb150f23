"""A cache that all tests of the loops share: the tiny model is made and warmed up once."""

from pathlib import Path

import pytest

from ragen.envs import Environment, EnvSettings, Step


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RAGEN_CACHE", str(session_cache))
    return session_cache


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
