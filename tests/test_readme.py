"""The README is true: its Python example runs and trains, its file tree is complete, its links lead somewhere."""

import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from ragen.cli.main import main

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "ragen"
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)  # an environment, and how to train on it


def files_in_the_tree() -> set[str]:
    """Paths under src/ragen that the tree names: a name with a slash opens a folder, two blanks end the names."""
    (tree,) = re.findall(r"```\n(src/ragen/ .*?)```", README, flags=re.DOTALL)
    folders: list[str] = []
    found = set()
    for line in tree.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        head, _, rest = line.strip().partition("  ")
        names = head.split()
        if names[0].endswith("/"):
            folders = [*folders[:depth], names.pop(0)]
            names = rest.strip().partition("  ")[0].split()
        found |= {"".join([*folders[: depth + 1], name]) for name in names}
    return {name.removeprefix("src/ragen/") for name in found}


def test_every_source_file_stands_in_the_file_tree_and_nothing_else() -> None:
    there = {
        path.relative_to(SOURCES).as_posix()
        for path in SOURCES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files_in_the_tree() == there


@pytest.mark.e2e
def test_the_python_example_trains_on_the_custom_environment(
    tmp_path: Path, ragen_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment, training = BLOCKS
    assert len(training.splitlines()) <= 12
    (tmp_path / "lock.py").write_text(environment, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(training, "README.md", "exec"), names)
    result = names["result"]
    sys.modules.pop("lock")
    assert len(result.history) == 2
    assert sum(step["update/optimizer_steps"] for step in result.history) > 0
    assert f"success {result.before.success:.2f} → {result.after.success:.2f}" in capsys.readouterr().out
    assert (tmp_path / result.run / "checkpoints" / "latest").is_file()


def test_the_environment_that_is_shown_is_the_example_s_and_a_short_one() -> None:
    example = (ROOT / "examples" / "custom_environment.py").read_text(encoding="utf-8")
    assert BLOCKS[0].strip() == example[example.index("import ragen\n") : example.index("if __name__")].strip()
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 40


def test_the_commands_on_the_environment_that_is_shown_are_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Up to what loads a model; ``runs/NAME`` stands for a run that a reader has."""
    commands = re.findall(r"^ragen (.*lock\.py:Lock.*?)(?: +#.*)?$", README, flags=re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["play", "train"]
    (tmp_path / "lock.py").write_text(BLOCKS[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.stdin", io.StringIO("blue\n" * 3))
    asked: list[Any] = []
    monkeypatch.setattr("ragen.loops.train.train", lambda config, **rest: asked.append(config.env) or Stopped())
    assert [main(shlex.split(line)) for line in commands] == [0, 0]
    assert "success · end: terminated · total 1" in capsys.readouterr().out
    assert asked == [{"name": "lock.py:Lock"}]


class Stopped:
    """What a training came to, as far as the command line looks."""

    stopped = ""


def test_the_custom_environment_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    from ragen.envs import check_environment

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from custom_environment import Lock

    sys.modules.pop("custom_environment")
    assert check_environment(Lock) == []
    env = Lock()
    for seed in range(20):
        env.reset(instance_seed=seed, dynamics_seed=0)
        steps = [env.step(env.plan()[0]) for _ in range(3) if not env.success]
        assert env.success
        assert sum(step.reward for step in steps) == pytest.approx(1.0)


def test_the_examples_of_the_guide_keep_the_contract() -> None:
    from ragen.envs import check_environment

    guide = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL):
        exec(compile(block, "environments.md", "exec"), names)
    assert check_environment(names["taxi"]) == []
    assert check_environment(names["Safe"]) == []


def test_every_preset_of_the_registry_stands_in_the_guide() -> None:
    from ragen.envs import environments

    guide = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    rows = [re.findall(r"`([^`]*)`", line.split("|")[1]) for line in guide.splitlines() if line.startswith("| `")]
    told = {
        name if not name.startswith("-") else row[0].partition("-" if "lake" in row[0] else "!")[0] + name
        for row in rows
        for name in row
    }
    ours = ("bandit", "frozen", "gsm8k", "sokoban", "sql", "wiki")
    assert [name for name in environments if name.startswith(ours) and name not in told] == []


def test_links_to_files_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    links = [(page, link) for page in pages for link in re.findall(r"(?<!!)\[[^\]]*\]\(([^)#]+)\)", page.read_text("utf-8"))]
    assert len(links) > 5
    assert [(page.name, link) for page, link in links if "://" not in link and not (page.parent / link).exists()] == []
