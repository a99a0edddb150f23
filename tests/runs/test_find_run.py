"""A run that is not there: the nearest names, few of them, or what the path is instead."""

from pathlib import Path

import pytest

from ragen.cli.main import main
from ragen.errors import CheckpointError
from ragen.registry import FEW, MANY, likeliest, nearest
from ragen.runs.directory import find_run
from ragen.runs.lock import LOCK

NAMES = [f"{env}-starpo-s-grpo-tiny-seed{seed}-2026010{seed}-120000" for env in ("bandit", "sokoban") for seed in range(10)]
ASKED = {  # what is typed → the names that must be told, and no other
    "bandit-starpo-s-grpo-tiny-seed3": [NAMES[3]],
    "seed3-": [NAMES[3], NAMES[13]],
    "SEED3-": [NAMES[3], NAMES[13]],
    "runs/seed3-": [NAMES[3], NAMES[13]],
    NAMES[7].replace("bandit", "bandt"): [NAMES[7]],
    "omga": ["omega"],
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in (*NAMES, "omega"):
        (tmp_path / "runs" / name / "checkpoints" / "step-000001").mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").write_text("")
    (tmp_path / "runs" / "no-run").mkdir()
    return tmp_path


def told(said: str) -> list[str]:
    return [name for name in (*NAMES, "omega") if name in said]


@pytest.mark.parametrize("asked", ASKED)
def test_the_nearest_runs_come_first_and_are_few(root: Path, asked: str) -> None:
    with pytest.raises(CheckpointError, match="did you mean '") as error:
        find_run(asked)
    assert ASKED[asked][0] in str(error.value).partition("did you mean ")[2].partition(" or ")[0]
    assert set(ASKED[asked]) <= set(told(str(error.value)))
    assert len(told(str(error.value))) <= FEW


@pytest.mark.parametrize("command", [["show"], ["plot"], ["eval"], ["bench"], ["train", "--resume"]], ids=" ".join)
@pytest.mark.parametrize("asked", ["zzz", "seed3-", "no-run", "starpo"])
def test_every_command_that_takes_a_run_lists_a_few(
    root: Path, command: list[str], asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, asked]) == 2
    said = capsys.readouterr().err
    assert 1 <= len(told(said)) <= FEW
    assert "did you mean" in said or "; `ragen runs` lists all" in said


def test_a_path_that_is_something_else_is_told_what_it_is(root: Path) -> None:
    for inside in ("runs/omega/checkpoints/step-000001", "runs/omega/checkpoints", "runs/omega/nothing"):
        with pytest.raises(CheckpointError, match=r"it is inside the run 'runs/omega': give that$"):
            find_run(inside)
    with pytest.raises(
        CheckpointError, match=r"it holds 21 runs: give one of them, such as runs/\S+ \(`ragen runs runs` lists"
    ):
        find_run("runs")
    with pytest.raises(CheckpointError, match=rf"there is no directory 'elsewhere' in '{root}'$"):
        find_run("omega", "elsewhere")
    Path("elsewhere").mkdir()
    with pytest.raises(CheckpointError, match=r"there are no runs in 'elsewhere'$"):
        find_run("omega", "elsewhere")
    assert find_run("omega") == Path("runs/omega")
    Path("runs/omega/config.yaml").unlink()
    for name in ("omega", "runs/omega"):
        with pytest.raises(
            CheckpointError, match=r"gone: copy runs/omega/checkpoints/step-…/settings\.yaml to runs/omega/con"
        ):
            find_run(name)


def test_a_run_that_was_killed_in_its_warm_up_is_told_to_begin_anew(root: Path) -> None:
    (root / "runs" / "no-run" / LOCK).touch()
    for name in ("no-run", "runs/no-run"):
        with pytest.raises(CheckpointError, match=r"killed before its first step .*: begin anew$"):
            find_run(name)


def test_a_long_list_of_names_is_cut_and_the_likeliest_stand_first() -> None:
    known = [f"rule_{number}" for number in range(MANY + 1)] + ["quite_other"]
    assert nearest("other", known).startswith("known: quite_other, ")
    assert nearest("other", known).endswith(f"… ({MANY + 2} in all)")
    assert nearest("xyz", known[:MANY]) == f"known: {', '.join(sorted(known[:MANY]))}"
    assert nearest("RULE_1", known) == "did you mean 'rule_1'?"
    assert likeliest("3", known) == ["rule_3", "rule_13", "rule_0"]
    assert nearest("xyz", known, "`list`") == "`list` lists all"
