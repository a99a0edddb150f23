"""`ragen envs`: every environment tells what it is, its settings, the file it needs, and who plays beside an agent."""

import re
from pathlib import Path

import pytest

from ragen.cli.main import main
from ragen.envs import Environment, environment_factory, environments
from ragen.errors import ConfigError


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["envs", *words]) == 0
    return capsys.readouterr().out


def without_a_file(name: str) -> Environment | None:
    try:
        return environment_factory({"name": name})()
    except ConfigError:
        return None


@pytest.mark.parametrize("name", environments.names())
def test_every_environment_tells_its_rules_settings_players_and_how_to_play_it(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text, preset = told(capsys, name), environments.get(name)
    for part in ("Actions", "Observation", "Rewards", "End", "Instances"):
        assert re.search(rf"^- {part}\b[^:\n]*: ", text, re.MULTILINE)
    for key, field in preset.cls.settings_class.model_fields.items():
        assert f"\n  {key} = " in text
        assert field.description
    players = text.partition("evaluation:\n")[2].partition("\n\n")[0]
    assert "random (the floor)" in players
    assert ("optimal (the ceiling): " in players) == (preset.cls.plan is not Environment.plan)
    assert f"\n\nPlay it: ragen play {name}" in text
    env = without_a_file(name)
    assert all(f"\n  {player} " in players for player in (env.players() if env else ()))


@pytest.mark.parametrize("name", environments.names())
def test_an_environment_that_cannot_be_made_without_a_file_says_so_in_the_list_and_beside_its_name(
    capsys: pytest.CaptureFixture[str], name: str
) -> None:
    line = next(line for line in told(capsys).splitlines() if line.split()[:1] == [name])
    needed = without_a_file(name) is None
    assert ("needs env.file" in line) == needed
    assert (f"Play it: ragen play {name} --env.file FILE\n" in told(capsys, name)) == needed


def test_an_environment_of_ones_own_tells_its_players_as_far_as_it_says_them(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from ragen import Environment, Observation\n\n\n"
        "class Own(Environment):\n"
        "    success = False\n\n"
        "    def reset(self, *, instance_seed, dynamics_seed):\n        return Observation('Go.')\n\n"
        "    def actions(self):\n        return ('a',)\n\n"
        "    def instructions(self):\n        return 'Say a.'\n\n"
        "    def players(self):\n        return {'one': lambda env, rng: ['a']}\n\n"
        "    def plan(self):\n        return ('a',)\n\n"
        "    def step(self, action):\n        return 1 / 0\n"
    )
    text = told(capsys, f"{file}:Own")
    assert "  those of its players()\n  optimal (the ceiling): its plan()\n" in text


def test_tools_without_a_solution_have_no_oracle(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, solved = tmp_path / "own.py", "    def solution(self):\n        return '1'\n"
    text = (
        "from ragen.envs import ToolEnvironment\n\n\n"
        "class Own(ToolEnvironment):\n"
        "    def start(self, instance_seed, dynamics_seed):\n        return 'Go.'\n\n"
        "    def tools(self):\n        return ()\n\n"
        "    def judge(self, answer):\n        return float(answer == '1')\n\n"
        '    def actions(self):\n        return (\'{"name": "answer", "arguments": {"text": "1"}}\',)\n\n'
        "    def instructions(self):\n        return 'Answer 1.'\n\n"
    )
    file.write_text(f"{text}\n\nclass Solved(Own):\n{solved}")
    assert "no optimal one: best play is not known" in told(capsys, f"{file}:Own")
    assert "optimal (the ceiling)" in told(capsys, f"{file}:Solved")
