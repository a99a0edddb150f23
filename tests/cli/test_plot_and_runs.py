"""`ragen plot` and `ragen runs` on runs as they lie on disk: whole, half done, damaged."""

import builtins
import errno
import json
import os

import pytest

from ragen.cli.main import main
from ragen.cli.plot import draw
from ragen.config import load_config
from ragen.errors import CheckpointError
from ragen.report.overview import overview
from ragen.runs.directory import RunDirectory
from ragen.runs.lock import locked
from ragen.runs.summary import eval_points

PNG = b"\x89PNG"


def make(root, name, *, steps=3, returns=-0.5, evaluations=("before", "after", "step-2")):
    config = load_config("bandit-starpo-s-grpo-tiny", ["--run.root", str(root), "--run.name", name, "--steps", "5"])
    run = RunDirectory.create(config)
    for step in range(1, steps + 1):
        metrics = {"rollout/success": 0.5, "rollout/return_mean": returns, "rollout/return_std": 0.1, "time/step_s": 1.5}
        run.append_metrics(step, {**metrics, "rollout/entropy": float("nan")})
    for number, kind in enumerate(evaluations):
        report = {"success": 0.25 * (number + 1), "success_interval": [0.2 * (number + 1), 0.3 * (number + 1)]}
        run.write_eval(kind, {"before": 0, "after": steps}.get(kind, 2), report)
    run.write_eval("after-bandit-rev", steps, {"success": 0.0, "success_interval": [0, 0.1]})
    return run


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_evaluations_stand_where_they_were_made(root):
    points = eval_points(make(root, "one"))
    assert [(point.name, point.step, point.success) for point in points] == [
        ("before", 0, 0.25),
        ("step-2", 2, 0.75),
        ("after", 3, 0.5),
    ]


def panels_of(monkeypatch, *words):
    from matplotlib.figure import Figure

    seen = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, out, **_: seen.append(figure))
    assert main(["plot", *words]) == 0
    return seen[0]


@pytest.mark.parametrize("returns", [-7.5, -0.1, 0.0, 0.4, 12.0])
def test_every_value_lies_inside_its_panel_and_the_title_names_the_run(root, monkeypatch, returns):
    make(root, "one", returns=returns)
    figure = panels_of(monkeypatch, "one")
    low, high = figure.axes[1].get_ylim()
    assert low < returns < high
    assert [axis.get_ylim()[0] for axis in (figure.axes[0], figure.axes[2], figure.axes[3])] == [0.0, 0.0, 0.0]
    assert figure.get_suptitle() == "bandit · tiny · StarPO-S (grpo) · seed 0"


SERIES = {  # of four steps
    "nearly level": [5.70, 5.68, 5.69, 5.69],
    "level": [5.7] * 4,
    "a spike": [0.03, 0.04, 3.0, 0.05],
    "zero": [0.0] * 4,
    "falling": [4.0, 2.0, 1.0, 0.5],
    "with a gap": [2.0, float("nan"), 1.9, 2.1],
}


@pytest.mark.parametrize("second", [None, *SERIES])
@pytest.mark.parametrize("series", SERIES)
def test_no_point_of_any_panel_touches_the_upper_frame(root, monkeypatch, series, second):
    for name in filter(None, (series, second and f"{second} too")):
        run = make(root, name.replace(" ", "_"), steps=0, evaluations=())
        for step, value in enumerate(SERIES[name.removesuffix(" too")], 1):
            shares = {"rollout/success": value / 6, "rollout/return_mean": value - 3}
            run.append_metrics(step, {**shares, "rollout/return_std": value, "rollout/entropy": value})
    figure = panels_of(monkeypatch, *sorted(path.name for path in root.iterdir()))
    for axis in figure.axes:
        low, high = axis.get_ylim()
        points = [y for line in axis.get_lines() for y in line.get_ydata() if y == y]
        assert points
        assert low <= min(points)
        assert max(points) < high - 0.04 * (high - low), axis.get_title()


def test_before_and_after_differ_by_their_marks_and_runs_by_their_colours(root, monkeypatch):
    make(root, "one")
    make(root, "two")
    figure = panels_of(monkeypatch, "one", "runs/two")
    panel = figure.axes[0]
    squares = [line for line in panel.get_lines() if line.get_marker() == "s"]
    assert {line.get_markerfacecolor() for line in squares} == {"white", "C0", "C1"}
    assert [line.get_xdata()[0] for line in squares] == [0.5, 2.5, 3.5] * 2
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == [  # each once
        "one",
        "two",
        "evaluation before training (95 % interval)",
        "evaluation during or after training (95 % interval)",
    ]


def test_the_temperatures_of_training_and_evaluation_are_told(root, monkeypatch):
    for name, heat in (("one", 0.5), ("two", 0)):
        run = make(root, name)
        for file in (run.path / "eval").glob("*.json"):
            told = {"temperature": 0.25 if file.stem == "before" else heat}
            file.write_text(json.dumps(json.loads(file.read_text()) | told))
    figure = panels_of(monkeypatch, "one", "two")
    assert figure.axes[0].get_title() == "success in training, T = 1"
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[2:] == [
        "evaluation before training (T = 0.25, 95 % interval)",
        "evaluation during or after training (T = 0 or 0.5, 95 % interval)",
    ]


def test_a_run_without_evaluations_has_no_squares_explained(root, monkeypatch):
    run = make(root, "one", evaluations=())
    assert [text.get_text() for text in panels_of(monkeypatch, str(run.path)).legends[0].get_texts()] == ["one"]


@pytest.mark.parametrize("name", ["curve.png", "deep/er/x.PNG", "x.svg", "x.pdf"])
def test_the_picture_is_written_where_it_was_asked_for(root, name, capsys):
    run = make(root, "one", evaluations=())
    assert main(["plot", str(run.path), "-o", name]) == 0
    assert capsys.readouterr().out == f"written: {name}\n"
    assert (root.parent / name).stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "RUN"),
        (["nosuch"], "did you mean"),
        (["empty"], "no step to draw yet"),
        (["one", "-o", "x.xyz"], "known format"),
        (["one", "-o", "/proc/x/y.png"], "cannot be written"),
        (["damaged"], "is not an evaluation"),
    ],
)
def test_what_cannot_be_drawn_says_why(root, words, said, capsys):
    make(root, "one")
    make(root, "nosuck")
    make(root, "empty", steps=0)
    (make(root, "damaged").path / "eval" / "after.json").write_text("[]")
    assert main(["plot", *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(root.parent.glob("*.png"))


def test_without_matplotlib_the_extra_is_named(root, monkeypatch, capsys):
    make(root, "one")
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    assert main(["plot", "one"]) == 2
    assert "pip install" in capsys.readouterr().err


def test_runs_are_listed_oldest_first_with_what_they_reached(root, capsys):
    for age, (name, options) in enumerate(
        {"older": {}, "half": {"evaluations": ("before",)}, "new": {"steps": 0, "evaluations": ()}}.items()
    ):
        run = make(root, name, **options)
        file = run.path / ("metrics.jsonl" if options.get("steps") != 0 else "config.yaml")
        os.utime(file, (1_000_000_000 + age, 1_000_000_000 + age))
    (root / "not-a-run").mkdir()
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "older", "half", "new"]
    assert "bandit" in lines[1]
    assert "StarPO-S (grpo)" in lines[1]
    assert "3/5" in lines[1]
    assert "0.250 [0.200, 0.300] → 0.500 [0.400, 0.600]" in lines[1]
    assert lines[1].endswith("(1.5 s)")
    assert "0.250 [0.200, 0.300] → –" in lines[2]
    assert "0/5" in lines[3]
    assert "– → –" in lines[3]


@pytest.mark.parametrize(("numbers", "told"), [((), "3/5  "), ((1,), "3/5, 1 rollback "), ((1, 2, 10), "3/5, 3 rollbacks ")])
def test_runs_tell_how_often_they_were_rolled_back(root, capsys, numbers, told):
    run = make(root, "one")
    for number in reversed(numbers):
        run.write_rollback(number, {"rollback": number, "at_step": 10 * number, "to_step": 2}, [])
    assert main(["runs"]) == 0
    assert told in capsys.readouterr().out.splitlines()[1]
    assert run.rollbacks() == tuple((10 * number, 2) for number in numbers)


@pytest.mark.parametrize(
    ("left", "missing"), [([], "3 of the 3 steps done (1, 2, 3)"), ([1, 3], "1 of the 3 steps done (2)"), ([1, 2, 3], "")]
)
@pytest.mark.parametrize("whole_file", [True, False])
def test_metrics_that_were_lost_are_told_in_the_list_and_the_report(root, capsys, left, missing, whole_file):
    run = make(root, "one", evaluations=())
    run.checkpoints.save(3, lambda folder: (folder / "x").touch())
    (run.path / "eval" / "after-bandit-rev.json").unlink()
    file = run.path / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[step - 1] for step in left))
    if not left and not whole_file:
        file.unlink()
    assert main(["runs"]) == 0
    assert ("3/5, metrics lost" if missing else "3/5  ") in capsys.readouterr().out
    assert main(["report", "one"]) == 0
    said = capsys.readouterr().err
    assert (f"note: {run.path.relative_to(root.parent)}: metrics.jsonl lacks {missing}" in said) == bool(missing)
    assert [f"metrics.jsonl lacks {missing}" in note for note in overview(run).notes] == ([True] if missing else [])


@pytest.mark.parametrize("file", ["config.yaml", "metrics.jsonl", "eval/after.json", "rollbacks/rollback-1.json"])
def test_a_damaged_run_does_not_hide_the_others(root, capsys, file):
    make(root, "good")
    bad = make(root, "bad")
    bad.write_rollback(1, {"rollback": 1, "at_step": 10, "to_step": 2}, [])
    (bad.path / file).write_text("{nonsense\n{\n")
    assert main(["runs", str(root)]) == 0
    text = capsys.readouterr().out
    assert "cannot be read" in text
    assert "3/5" in text


def test_no_runs_says_how_to_make_one(root, capsys):
    assert main(["runs"]) == 2
    assert "ragen train" in capsys.readouterr().err


def test_an_environment_of_a_file_is_named_without_its_folders(root, capsys, monkeypatch):
    run = make(root, "one")
    place = f"{root}/a/long/path/my_env.py:MyEnv"
    stored = run.path / "config.yaml"
    stored.write_text(stored.read_text().replace("name: bandit", f"name: {place}"))
    assert main(["runs"]) == 0
    assert "one  my_env.py:MyEnv  StarPO-S" in capsys.readouterr().out
    assert panels_of(monkeypatch, "one").get_suptitle().startswith("my_env.py:MyEnv · tiny")
    assert place in stored.read_text()


def test_a_picture_that_the_disk_refuses_is_told_with_the_place(root, monkeypatch, tmp_path):
    make(root, "one")

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    with pytest.raises(CheckpointError, match=r"the picture could not be written to '.*p\.svg': the disk is full"):
        draw([RunDirectory.open(root / "one")], tmp_path / "p.svg")


@pytest.mark.parametrize("content", ["[" * 100_000, "{", "[]", '{"step": 1}', '{"step": 1, "success_interval": 3}', "\x00"])
def test_a_damaged_evaluation_costs_its_own_row_only(root, capsys, content):
    make(root, "good")
    make(root, "bad")
    (root / "bad" / "eval" / "after.json").write_text(content)
    assert main(["runs", str(root)]) == 0
    told = capsys.readouterr().out
    assert "bad" in told
    assert "cannot be read" in told
    assert "good" in told


@pytest.mark.parametrize("others", [True, False])
def test_a_run_in_its_warm_up_is_listed_and_not_taken_for_a_wrong_name(root, capsys, others):
    if others:
        make(root, "good")
    (root / "begun").mkdir(parents=True)
    with locked(root / "begun"):
        assert main(["runs", str(root)]) == 0
        told = capsys.readouterr().out
        assert "begun" in told
        assert "being prepared" in told
        assert ("good" in told) is others
        assert main(["show", "begun"]) == 2
        assert "the run is being prepared (model and warm-up)" in capsys.readouterr().err
    assert main(["show", "begun"]) == 2  # given up: a name like any other
    assert "being prepared" not in capsys.readouterr().err
