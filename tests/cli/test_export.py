"""`ragen export` on a run on disk: which episodes go out, and what is said."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from ragen.cli.main import main
from ragen.config import load_config
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.runs.directory import RunDirectory

WORDS = [f"w{i}" for i in range(9)]


def member(number: int, reward: float) -> Trajectory:
    reply = Completion((1, 2), (-0.1, -0.1), (0.2, 0.2), "w1 w2", StopReason.END)
    turn = Turn((3, 4), False, reply, "observed", ("Up",), True, reward=reward)
    return Trajectory("bandit", 100, number, (turn,), EndReason.TERMINATED, success=reward > 0.5)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    words = ["--run.root", str(tmp_path), "--run.name", "one", "--rollout.groups", "2"]
    made = RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", words))
    backend = Tokenizer(WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="w0"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="w8")
    made.checkpoints.save(2, tokenizer.save_pretrained)
    for step in (1, 2, 5):
        groups = [Group(g, (member(0, 0.0), member(1, 0.25), member(2, 1.0))) for g in range(2)]
        made.write_trajectories(step, groups, [], {(1, number): (0.5,) for number in range(3)})
    return made


def exported(run: RunDirectory, *words: str) -> list[tuple[int, int, int]]:
    out = run.path.parent / "out.jsonl"
    assert main(["export", str(run.path), "-o", str(out), "--force", *words]) == 0
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [(line["step"], line["group"], line["member"]) for line in lines]


def test_all_stored_episodes_or_those_asked_for(run: RunDirectory) -> None:
    everything = [(step, group, number) for step in (1, 2, 5) for group in range(2) for number in range(3)]
    assert exported(run) == everything
    assert exported(run, "--success") == [each for each in everything if each[2] == 2]
    assert exported(run, "--trained") == [each for each in everything if each[1] == 1]
    assert exported(run, "--min-return", "0.25") == [each for each in everything if each[2] >= 1]
    assert exported(run, "--steps", "2") == [each for each in everything if each[0] == 2]
    assert exported(run, "--steps", "1,3-9", "--success") == [(1, 0, 2), (1, 1, 2), (5, 0, 2), (5, 1, 2)]


def test_it_says_what_was_written_and_what_to_do_with_it(run: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    exported(run, "--success")
    told = capsys.readouterr().out.splitlines()
    assert told == [
        f"{run.path.parent / 'out.jsonl'}: 6 rows, 6 episodes of 3 steps (sharegpt)",
        f"warm up on it: ragen warmup {run.path / 'config.yaml'} --warmup.data {run.path.parent / 'out.jsonl'}",
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["-o", "x.csv"], "has no known format: end it with .jsonl or .parquet"),
        (["-o", "x.jsonl", "--steps", "3"], "no trajectories of step 3"),
        (["-o", "x.jsonl", "--steps", "3-4"], "no step of 3-4 is stored"),
        (["-o", "x.jsonl", "--steps", "first"], "--steps is 'first': give steps and ranges"),
        (["-o", "x.jsonl", "--min-return", "9"], "none of the episodes"),
        ([], "-o/--out"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_written(
    run: RunDirectory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    problem: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run.path), *words]) == 2
    assert problem in capsys.readouterr().err
    assert not list(tmp_path.glob("x.*"))


def test_parquet_by_its_ending(run: RunDirectory, tmp_path: Path) -> None:
    from pyarrow.parquet import read_table

    assert main(["export", str(run.path), "-o", str(tmp_path / "x.parquet")]) == 0
    assert read_table(tmp_path / "x.parquet").num_rows == 18
