"""What may change when a run goes on, and what is refused before anything is loaded or written."""

import json

import pytest

from ragen.config import load_config
from ragen.config.paths import fields
from ragen.errors import CheckpointError, RagenError
from ragen.loops.result import finished
from ragen.runs.directory import RunDirectory, stored_config
from ragen.runs.interrupt import INTERRUPTED
from ragen.runs.resume import FREE_SETTINGS, resumed, taken_up, write_settings
from ragen.runs.summary import DONE

OTHER = {
    "seed": "5",
    "env.max_turns": "4",
    "model.name": "other",
    "rollout.members": "4",
    "curriculum.window": "5",
    "filter.value": "0.75",
    "echo_trap.window": "6",
    "reward.overlong_coef": "0.5",
    "replay.max_age": "9",
    "advantage.gamma": "0.5",
    "loss.clip_high": "0.21",
    "optim.learning_rate": "0.5",
    "warmup.epochs": "9",
}


@pytest.fixture
def run(tmp_path):
    """A run of ten steps of forty."""
    words = ["--run.root", str(tmp_path), "--run.name", "one", "--steps", "40"]
    made = RunDirectory.create(load_config("frozen_lake-starpo-s-grpo-tiny", words))
    made.write_provenance(threads=1)
    for step in range(1, 11):
        made.append_metrics(step, {"x": float(step)})
    made.write_eval("before", 0, {"success": 0.5})
    made.checkpoints.save(5, lambda folder: write_settings(folder, made.config))
    made.checkpoints.save(10, lambda folder: write_settings(folder, made.config))
    return made


def files(run):
    return {str(path.relative_to(run.path)): path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def go_on(run, *words):
    with resumed(run.path, stored_config(run.path, words)) as point:
        return point


def test_steps_evaluation_and_run_may_change(run):
    point = go_on(run, "--steps", "60", "--eval.episodes", "7", "--run.keep", "9")
    assert (point.step, point.run.config.steps, point.run.config.eval.episodes) == (10, 60, 7)
    assert point.checkpoint == run.checkpoints.path(10)
    assert point.trained.steps == 40


@pytest.mark.parametrize("key", OTHER)
@pytest.mark.parametrize("way", ["override", "config.yaml edited"])
def test_b2_nothing_else_may_wherever_it_is_changed(run, key, way):
    file = run.path / "config.yaml"
    words = [f"--{key}", OTHER[key]]
    if way != "override":
        RunDirectory(run.path, load_config(file, words)).write_config()
        words = []
    before = files(run)
    with pytest.raises(CheckpointError, match=rf"{key} = .*, not {OTHER[key]}.*start a new run"):
        go_on(run, *words)
    assert files(run) == before


def test_every_section_is_either_free_or_watched():
    sections = {key.partition(".")[0] for key in fields()}
    assert sections == {key.partition(".")[0] for key in (*FREE_SETTINGS, *OTHER)}


def test_the_stages_of_a_curriculum_are_watched(run):
    with pytest.raises(CheckpointError, match=r"curriculum.stages = \[\], not \[\{'env': \{'max_turns': 2\}"):
        go_on(run, "--curriculum.stages", "[{env: {max_turns: 2}, until: 1}]")


def test_n25_only_the_settings_that_differ_are_told(run):
    with pytest.raises(CheckpointError) as error:
        go_on(run, "--optim.learning_rate", "0.5")
    assert "optim.learning_rate" in str(error.value)
    assert "betas" not in str(error.value)


@pytest.mark.parametrize("text", ["", "~", "[]", "steps: 40\n", "env: {name: bandit}\n", "5"])
def test_b2_an_emptied_or_cut_config_is_refused_and_says_where_the_settings_are(run, text):
    (run.path / "config.yaml").write_text(text)
    for way in (lambda: RunDirectory.open(run.path), lambda: stored_config(run.path, ["--steps", "60"])):
        with pytest.raises(CheckpointError, match=r"config\.yaml' lacks .*settings\.yaml"):
            way()


@pytest.mark.parametrize("steps", [0, 3, 9])
def test_n2_fewer_steps_than_are_done_are_refused_and_nothing_is_written(run, steps):
    before = files(run)
    with pytest.raises(CheckpointError, match=rf"has done 10 steps, and steps is {steps}: give --steps 10 or more"):
        go_on(run, "--steps", str(steps))
    assert files(run) == before


@pytest.mark.parametrize("key", ["name", "root"])
def test_b37_another_place_is_refused_and_the_own_one_or_none_is_not(run, key, tmp_path):
    with pytest.raises(CheckpointError, match=rf"run.{key} is 'other'.*goes on where it lies"):
        go_on(run, f"--run.{key}", "other")
    for words in (["--run.name", "one"], ["--run.root", str(tmp_path)], ["--run.name", ""]):
        assert go_on(run, *words).run.config.run.name == "one"
    moved = run.path.rename(tmp_path / "moved")
    with resumed(moved, stored_config(moved)) as point:
        assert point.run.path == moved


DAMAGE = {
    "provenance.json": ["{", "5", '"x"', "[" * 100000, "\x00"],
    "metrics.jsonl": ["5\n", '{"a":1}\n', '{"step":null}\n', '{"step":"1"}\n', "[1]\n", "{\n{}\n", '{"step":1}\nnull\n'],
    "eval/before.json": ["{", "[]", "{}", '{"step":null}', "5"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in DAMAGE.items() for text in texts])
def test_b30_a_damaged_file_of_the_run_is_named_before_anything_is_loaded(run, name, text):
    (run.path / name).write_text(text)
    with pytest.raises(CheckpointError, match=name):
        go_on(run)


@pytest.mark.parametrize(
    ("left", "told"),
    [
        ([], "lacks 10 of the 10 steps done (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)"),
        ([*range(3, 11)], "lacks 2 of the 10 steps done (1, 2)"),
        ([*range(1, 7), 11, 12], "lacks 4 of the 10 steps done (7, 8, 9, 10)"),
        (None, "lacks 10 of the 10 steps done"),
    ],
)
def test_metrics_that_lack_steps_are_refused_with_the_file_and_the_steps_and_nothing_is_written(run, left, told):
    file = run.path / "metrics.jsonl"
    if left is None:
        file.unlink()
    else:
        file.write_text("".join(json.dumps({"step": step}) + "\n" for step in left))
    before = files(run)
    with pytest.raises(CheckpointError) as error:
        go_on(run)
    assert f"'{file}' {told}" in str(error.value)
    assert f"--model {run.checkpoints.path(10)} --warmup.data none" in str(error.value)
    assert files(run) == before


def test_it_is_told_from_where_a_run_goes_on_and_what_is_done_again(run):
    assert taken_up(go_on(run)) == "going on from the checkpoint after step 10"
    for step in (11, 12):
        run.append_metrics(step, {"x": 1.0})
    assert taken_up(go_on(run)).endswith("step 10; steps 11 to 12 were done after it and are done again")


def test_steps_recorded_after_the_checkpoint_are_no_obstacle(run):
    run.append_metrics(11, {"x": 1.0})
    assert go_on(run).step == 10


MANIFESTS = [
    "5",
    "[]",
    "{}",
    "null",
    '{"format":1,"step":10,"files":5}',
    '{"format":1,"step":10,"files":{"settings.yaml":5}}',
    '{"format":1,"step":10,"files":{"settings.yaml":[1]}}',
    '{"format":1,"step":10,"files":{"settings.yaml":["a","b"]}}',
    '{"format":1,"step":null,"files":{}}',
    "[" * 100000,
]


@pytest.mark.parametrize("text", MANIFESTS)
def test_b30_a_checkpoint_with_a_damaged_manifest_is_passed_over(run, text):
    (run.checkpoints.path(10) / "manifest.json").write_text(text)
    assert go_on(run).step == 5


def test_a_checkpoint_without_its_settings_is_of_an_earlier_version(run):
    run.checkpoints.save(11, lambda folder: (folder / "x").write_text("x"))
    with pytest.raises(CheckpointError, match="does not tell the settings it was trained with"):
        go_on(run)


def test_the_settings_beside_the_weights_cannot_be_edited_unseen(run):
    file = run.checkpoints.path(10) / "settings.yaml"
    file.write_text(file.read_text().replace("gamma: 1.0", "gamma: 0.5"))
    assert go_on(run).step == 5


def test_a_run_without_a_whole_checkpoint_cannot_go_on(tmp_path):
    words = ["--run.root", str(tmp_path), "--run.name", "two"]
    made = RunDirectory.create(load_config("bandit-starpo-s-grpo-tiny", words))
    with pytest.raises(RagenError, match="none has been written yet"):
        go_on(made)
    assert json.dumps(sorted(files(made))) == '["config.yaml"]'


@pytest.mark.parametrize("ended", [None, INTERRUPTED, DONE, "stopped: Echo Trap at step 10"])
def test_a_run_with_nothing_left_to_do_is_tidied_of_what_a_kill_left(run, ended):
    for step in (1, 2, 3):
        run.checkpoints.path(step).mkdir()
    (run.path / "checkpoints" / ".writing-step-000003").mkdir()
    (run.path / "checkpoints" / "latest").write_text("step-000005\n")
    (run.path / ".config.yaml.tmp").write_text("x")
    (run.path / "eval" / "before.json").unlink()
    if ended is not None:
        run.write_end(ended)
    with resumed(run.path, stored_config(run.path, ["--steps", "10", "--eval.episodes", "0", "--run.keep", "2"])) as point:
        done = finished(point)
    assert done is not None
    assert (done.steps, done.stopped) == (10, DONE)
    assert sorted(path.name for path in run.checkpoints.folder.iterdir()) == ["latest", "step-000005", "step-000010"]
    assert (run.checkpoints.folder / "latest").read_text() == "step-000010\n"
    assert not list(run.path.rglob(".*.tmp"))
    assert run.end() == (DONE if ended in (None, INTERRUPTED) else ended)


def test_a_run_that_goes_on_is_tidied_too(run):
    (run.path / "checkpoints" / ".writing-step-000011").mkdir()
    (run.path / "checkpoints" / "latest").write_text("step-000005\n")
    run.cut_after(10)
    assert sorted(path.name for path in run.checkpoints.folder.iterdir()) == ["latest", "step-000005", "step-000010"]
    assert (run.checkpoints.folder / "latest").read_text() == "step-000010\n"
