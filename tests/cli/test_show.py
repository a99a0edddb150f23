"""`ragen show` on a run on disk, with a real tokenizer."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from ragen.cli.main import main
from ragen.config import load_config
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.report.overview import overview
from ragen.rollout.segments import segments
from ragen.runs.directory import RunDirectory
from ragen.runs.view import CLOSE, OPEN

WORDS = [f"w{i}" for i in range(40)]


def tokenizer():
    backend = Tokenizer(WordLevel({**{w: i for i, w in enumerate(WORDS)}, "<eos>": 40}, unk_token="w0"))
    backend.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")


def member(number, group):
    turns = []
    for k in range(2):
        ids = tuple((group * 10 + number * 5 + k * 2 + i) % 40 for i in range(2))
        completion = Completion((*ids, 40), (-0.1,) * 3, (0.2,) * 3, "text", StopReason.END)
        turns.append(Turn((7, 8, 9), k > 0, completion, "o", ("Up",), k == 0, reward=1.0, penalty=-0.1 * k))
    return Trajectory("bandit", 100 + group, number, tuple(turns), EndReason.TERMINATED, success=number == 0)


@pytest.fixture
def run(tmp_path):
    config = load_config(
        "bandit-starpo-s-grpo-tiny", ["--run.root", str(tmp_path), "--run.name", "one", "--rollout.groups", "3"]
    )
    made = RunDirectory.create(config)
    made.checkpoints.save(2, lambda folder: tokenizer().save_pretrained(folder))
    for step in (1, 2):  # groups are numbered through the run
        groups = [Group(3 * (step - 1) + g, (member(0, g), member(1, g))) for g in range(3)]
        made.write_trajectories(step, groups, [], {(1, 0): (0.5, -0.5)})
    return made


def test_a28_the_marks_on_the_screen_are_the_mask(run, capsys):
    assert main(["show", str(run.path), "--limit", "0"]) == 0
    text = capsys.readouterr().out
    shown = [piece.split(CLOSE)[0] for piece in text.split(OPEN)[2:]]  # the first mark is the legend
    expected = []
    for item in run.trajectories():
        (row,) = segments(item.trajectory)
        marked = [int(i) for i in row.token_ids[row.mask]]
        expected += [tokenizer().decode(marked[i : i + 3]) for i in range(0, len(marked), 3)]
    assert shown == expected
    assert len(shown) == 3 * 2 * 2


def test_the_title_counts_rollbacks(run, capsys):
    titles = []
    for number in (1, 2):
        assert main(["show", str(run.path)]) == 0
        titles.append(capsys.readouterr().out.splitlines()[0])
        run.write_rollback(number, {"rollback": number, "at_step": 9, "to_step": 2}, [])
    assert main(["show", str(run.path)]) == 0
    titles.append(capsys.readouterr().out.splitlines()[0])
    assert not titles[0].endswith("rollbacks")
    assert titles[1:] == [f"{titles[0]} · 1 rollback", f"{titles[0]} · 2 rollbacks"]


def test_one_member_of_one_group_of_one_step(run, capsys):
    assert main(["show", str(run.path), "--step", "1", "--group", "1", "--member", "0"]) == 0
    text = capsys.readouterr().out
    assert "step 1 · 6 trajectories" in text
    assert text.count("instance") == 1
    assert "turn 1: reward 1 · advantage +0.500 · actions Up" in text
    assert "turn 2: reward 1 · penalty -0.1 · advantage -0.500" in text
    assert "<eos>" in text


def test_without_a_choice_the_last_step_and_a_few(run, capsys):
    assert main(["show", str(run.path), "--limit", "2"]) == 0
    text = capsys.readouterr().out
    assert "step 2" in text
    assert "4 more (--limit 0 for all)" in text
    assert "not trained (filtered out)" in text


def test_what_was_trained_on_comes_first_unless_another_order_is_asked_for(run, capsys):
    groups = [Group(6 + g, (member(0, g), member(1, g))) for g in range(3)]
    run.write_trajectories(3, groups, [], {(7, 0): (0.5, -0.5), (8, 1): (0.1, 0.1)})
    assert main(["show", str(run.path), "--json", "--limit", "0"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(r["group"], r["member"]) for r in records] == [(7, 0), (8, 1), (6, 0), (6, 1), (7, 1), (8, 0)]
    assert main(["show", str(run.path), "--limit", "3"]) == 0
    text = capsys.readouterr().out
    assert "6 trajectories, 2 of them trained on, those first" in text
    assert main(["show", str(run.path), "--step", "2", "--limit", "1"]) == 0
    assert "6 trajectories, none of them trained on\n" in capsys.readouterr().out
    titles = [line for line in text.splitlines() if line.startswith("──")]
    assert ["not trained on" in line for line in titles] == [False, False, True]
    for word, order in (("--best", "highest return first"), ("--worst", "lowest return first")):
        assert main(["show", str(run.path), word]) == 0
        text = capsys.readouterr().out
        assert f"2 of them trained on, {order}" in text
        assert text.count("not trained on") == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--step", "9"], "stored: 1, 2"),
        (["--group", "9"], "groups are 3 to 5 (in the step 0 to 2)"),
        (["--member", "7"], "members 0 to 1"),
    ],
)
def test_what_is_not_there_says_what_is(run, capsys, words, said):
    assert main(["show", str(run.path), *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "in_run"), [(0, 3), (1, 4), (2, 5), (3, 3), (5, 5)])
def test_a_group_is_found_by_its_number_in_the_step_and_in_the_run(run, capsys, asked, in_run):
    assert main(["show", str(run.path), "--step", "2", "--group", str(asked), "--member", "0"]) == 0
    text = capsys.readouterr().out
    assert text.count("instance") == 1
    assert f"group {in_run} ({in_run - 3} of this step)" in text


def test_where_steps_resample_groups_have_their_numbers_in_the_run_alone(tmp_path, capsys):
    """With P = 3 and two groups collected again a step, groups 5 and 8 of a step were both "2 of this step"."""
    words = ["--run.root", str(tmp_path), "--run.name", "more", "--rollout.groups", "3", "--rollout.resample", "2"]
    made = RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", words))
    made.checkpoints.save(2, lambda folder: tokenizer().save_pretrained(folder))
    made.write_trajectories(2, [Group(g, (member(0, g),)) for g in range(5, 10)])
    assert overview(made).groups_a_step is None
    assert main(["show", str(made.path), "--group", "8"]) == 0
    text = capsys.readouterr().out
    assert text.count("instance") == 1
    assert "group 8 " in text
    assert "of this step" not in text
    assert main(["show", str(made.path), "--group", "2"]) == 2
    assert "groups are 5 to 9, members" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "members"),
    [
        (["--failed"], [1, 1, 1]),
        (["--invalid"], [0, 1] * 3),
        (["--failed", "--group", "1"], [1]),
        (["--best", "--limit", "2"], [0, 1]),
        (["--worst", "--member", "1"], [1, 1, 1]),
        (["--limit", "3"], [0, 1, 0]),
    ],
)
def test_filters_order_and_limit_choose_and_json_prints_what_is_stored(run, capsys, words, members):
    assert main(["show", str(run.path), "--json", *words]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["member"] for record in records] == members
    stored = [json.loads(line) for line in (run.path / "trajectories" / "step-000002.jsonl").read_text().splitlines()]
    assert all(record in stored for record in records)


def test_returns_give_the_order(run, capsys):
    low, high = (replace(member(m, 0), turns=(replace(member(m, 0).turns[0], reward=r),)) for m, r in ((0, -1.0), (1, 2.0)))
    run.write_trajectories(3, [Group(6, (low, high))])
    for word, members in (("--best", [1, 0]), ("--worst", [0, 1])):
        assert main(["show", str(run.path), "--json", word]) == 0
        assert [json.loads(line)["member"] for line in capsys.readouterr().out.splitlines()] == members


def test_nothing_chosen_says_what_there_is(run, capsys):
    run.write_trajectories(3, [Group(6, (member(0, 0),))])
    assert main(["show", str(run.path), "--failed"]) == 2
    assert "1 succeeded" in capsys.readouterr().err


@pytest.mark.parametrize("lines", [0, 1, 2])
def test_a_reader_that_leaves_is_not_an_error(run, lines):
    code = "import sys; from ragen.cli.main import main; sys.exit(main(sys.argv[1:]))"
    words = ["show", str(run.path), "--limit", "0"]
    script = f'"$0" -c "$@" | head -n {lines}; exit ${{PIPESTATUS[0]}}'
    for _ in range(2):
        done = subprocess.run(
            ["bash", "-c", script, sys.executable, code, *words], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_a_damaged_tokenizer_is_told(run, capsys):
    (run.checkpoints.path(2) / "tokenizer.json").write_text("{")
    assert main(["show", str(run.path)]) == 2
    assert "cannot be read as a tokenizer" in capsys.readouterr().err


FLAT = "within each group all episodes had the same {}, so none was better than another"


@pytest.mark.parametrize(
    ("metrics", "returns", "said"),
    [
        ({"filter/kept_groups": 0.0, "update/optimizer_steps": 0.0}, "total", "nothing was trained in this step: " + FLAT),
        ({"filter/kept_groups": 0.0}, "task", "nothing was trained in this step: " + FLAT),
        ({"filter/kept_groups": 0.0, "update/optimizer_steps": 4.0}, "total", "only demonstrations were trained on"),
        ({"filter/kept_groups": 2.0}, "total", None),
        (None, "total", None),
    ],
)
def test_a_step_in_which_nothing_was_trained_says_so_and_why(run, capsys, metrics, returns, said):
    stored = run.path / "config.yaml"
    stored.write_text(stored.read_text().replace("returns: total", f"returns: {returns}"))
    if metrics is not None:
        run.append_metrics(2, metrics)
    run.append_metrics(3, {"filter/kept_groups": 0.0})
    assert main(["show", str(run.path), "--step", "2", "--limit", "1"]) == 0
    second = capsys.readouterr().out.splitlines()[1]
    if said is None:
        assert second.startswith("sampled tokens:")
    else:
        assert second.startswith(said.format("return" if returns == "total" else "task return"))
    assert main(["show", str(run.path), "--step", "1", "--limit", "1"]) == 0
    assert "trained in this step" not in capsys.readouterr().out
