"""The command line: light start, clear errors, words in the right place."""

import io
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.cli import main as entry
from ragen.cli.arguments import split_overrides
from ragen.cli.main import COMMANDS, main
from ragen.cli.output import complain, give, tell
from ragen.errors import ConfigError, EnvironmentFault, ModelError

LIGHT = [
    ["--help"],
    ["--version"],
    ["train", "--help"],
    ["eval", "--help"],
    ["compare", "--help"],
    ["serve", "--help"],
    ["doctor", "--help"],
    ["envs"],
    ["envs", "sokoban"],
    ["presets"],
    ["presets", "bandit-starpo-s-grpo"],
    ["plot", "--help"],
    ["runs", "--help"],
    ["study", "--help"],
    ["study", "list"],
    ["study", "list", "filter"],
    ["study", "run", "fliter"],
    ["play", "bandit"],
    ["train", "bandit-starpo-grpo", "--clip_hihg", "1"],
    ["train", "bandit-starpo-grpo", "--json"],
    ["report", "x", "-steps", "3"],
    ["train", "bandt-starpo-grpo"],
    ["train", "bandit-starpo-grpo", "--eval.also", "[bandt]"],
    ["train", "--resume", "no-such-run"],
    ["train", "bandit-starpo-grpo", "--model", "wrong"],
    ["warmup", "bandit-starpo-s-grpo-tiny", "--model", "wrong"],
    ["eval", "wrong"],
    ["eval", "runs/wrong"],
    ["eval", "runs/wrong/checkpoints/step-1"],
    ["eval", "tests"],
    ["eval", "tiny", "--steps", "5"],
    ["eval", "tiny", "--rollout.max_tokens", "5"],
    ["compare", "tiny", "wrong"],
    ["compare", "tiny", "tiny", "--steps", "5"],
    ["serve", "wrong"],
    ["serve", "tiny", "--steps", "5"],
    ["bench", "wrong"],
    ["bench", "tiny", "--seed", "5"],
]


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_help_lists_and_play_load_no_torch(words):
    code = (
        "import sys; from ragen.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'transformers', 'rich'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], input="Phoenix\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_page(command, capsys):
    with pytest.raises(SystemExit) as leave:
        main([command, "--help"])
    assert leave.value.code == 0
    assert f"usage: ragen {command}" in capsys.readouterr().out


def test_the_overview_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert [name for name in COMMANDS if name not in text] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["trian"], "did you mean 'train'"),
        (["train"], "ragen presets"),
        (["train", "bandit-starpo-sgrpo"], "did you mean 'bandit-starpo-s-grpo'"),
        (["train", "bandit-starpo-grpo", "--loss.clip_hihg", "1"], "did you mean 'loss.clip_high'"),
        (["train", "bandit-starpo-grpo", "--resume", "x"], "not both"),
        (["train", "--resume", "no-such-run"], "not a run directory"),
        (["train", "bandit"], "'bandit' is an environment: its presets are bandit-starpo-ppo, "),
        (["train", "filter"], "'filter' is a study, a grid of runs: `ragen study run filter`"),
        (["warmup", "filter"], "`ragen study run filter`"),
        (["eval", "tiny", "--preset", "filter"], "`ragen study run filter`"),
        (["presets", "filter"], "`ragen study run filter`"),
        (["train", "mine.py:Parity"], "--env FILE.py:Class"),
        (["train", "."], "'.' is a directory"),
        (["train", ""], "unknown preset ''"),
        (["train", "x" * 5000], "unknown preset 'xxx"),
        (["train", "x" * 5000 + ".yaml"], "File name too long"),
        (["train", "no-such.yaml"], "cannot read 'no-such.yaml': No such file or directory; give a YAML file"),
        (["presets", "x" * 5000], "unknown preset 'xxx"),
        (["eval", "x" * 5000], "cannot be read: File name too long"),
        (["show", "x" * 5000], "not a run directory"),
        (["study", "run", "x" * 5000], "unknown study"),
        (["warmup", "x" * 5000], "unknown preset"),
        (["runs", "x" * 5000], "cannot be read: File name too long"),
        (["eval", "~nosuchuser/model"], "model '~nosuchuser/model' is not a directory that can be read"),
        (["plot", "x" * 5000], "not a run directory"),
        (["train", "zzz"], "unknown preset 'zzz': `ragen presets` lists all (a preset is"),
        (["train", "bandit-starpo-grpo", "--resum", "x"], "unknown option '--resum': did you mean '--resume'"),
        (["train", "--helpp"], "did you mean '--help'"),
        (["train", "bandit-starpo-grpo", "--preset", "x"], "preset is no setting"),
        (["train", "bandit-starpo-grpo", "-steps", "2"], "unknown option '-steps': did you mean '--steps'?"),
        (["train", "bandit-starpo-grpo", "-steps=2"], "unknown option '-steps': did you mean '--steps'?"),
        (
            ["train", "bandit-starpo-grpo", "-loss.kl_coef", "2"],
            "unknown option '-loss.kl_coef': did you mean '--loss.kl_coef'",
        ),
        (["train", "bandit-starpo-grpo", "-kl_coef", "2"], "unknown option '-kl_coef': did you mean '--loss.kl_coef'?"),
        (["train", "bandit-starpo-grpo", "-resume", "x"], "unknown option '-resume': did you mean '--resume'?"),
        (["train", "bandit-starpo-grpo", "--step", "3"], "did you mean '--steps'? '--step' belongs to `ragen shop` and"),
        (["train", "bandit-starpo-grpo", "steps=3"], "'steps=3' is no option: did you mean '--steps 3'?"),
        (["train", "bandit-starpo-grpo", "-zzz", "x"], "unknown option '-zzz': `ragen train --help` lists all"),
        (["train", "bandit-starpo-grpo", "--diff", "x"], "unknown setting 'diff'"),
        (["train", "bandit-starpo-grpo", "--episodes", "9"], "unknown setting 'episodes': did you mean 'eval.episodes'?"),
        (
            ["train", "bandit-starpo-grpo", "--json"],
            "'--json': it belongs to `ragen eval`, `ragen compare` and `ragen show`;",
        ),
        (["play", "bandit", "-seed", "3"], "unknown option '-seed': did you mean '--seed'?"),
        (["show", "x", "-step", "3"], "unknown option '-step': did you mean '--step'?"),
        (["export", "x", "-out", "y.jsonl"], "unknown option '-out': did you mean '--out'?"),
        (["export", "x", "-oy.jsonl"], "'x' is not a run directory"),
        (["export", "x", "-o", "y.jsonl", "--min-return", "-0.5"], "'x' is not a run directory"),
        (["study", "run", "filter", "-seeds", "3"], "unknown option '-seeds': did you mean '--seeds'?"),
        (["report", "x", "--diff", "y"], "unknown option '--diff': `ragen report --help` lists all"),
        (
            ["report", "x", "--seeds", "3"],
            "'--seeds': it belongs to `ragen study list`, `ragen study run` and `ragen study report`;",
        ),
        (["report", "x", "--loss.kl_coef", "3"], "that is a setting of a run, and `ragen report` takes none"),
        (["study", "rn", "filter"], "ACTION is 'rn': it must be 'list', 'run' or 'report'; did you mean 'run'?"),
        (["export", "x", "-o", "y", "--format", "json"], "--format is 'json': it must be 'parquet' or 'sharegpt' (see"),
        (["play", "bandit", "--seed", "three"], "--seed is 'three': it must be a whole number (see: ragen play --help)"),
        (["export", "x", "-o", "y", "--min-return", "all"], "--min-return is 'all': it must be a number"),
        (["show", "x", "--step"], "--step needs a value: write --step VALUE"),
        (["export", "x", "-o"], "-o/--out needs a value: write --out VALUE"),
        (["study", "run", "bandit-starpo-grpo"], "is a preset, the settings of one run: `ragen train bandit-starpo-grpo`"),
        (["--versoin"], "did you mean '--version'"),
        (["help"], "did you mean '--help'"),
        (["play"], "ENV (an environment preset (`ragen envs`), or FILE.py:Class)"),
        (["plot"], "RUN (run directories, or their names under runs/)"),
        (["runs", "nowhere"], "there is no directory 'nowhere'"),
        (["eval", "."], "'.' is a directory without a model (no config.json); nor is it a run"),
        (["show", "no-such-run"], "not a run directory"),
        (["show"], "RUN"),
        (["show", "x", "--step", "many"], "--step"),
        (["show", "x", "--limit", "-1"], "--limit is -1"),
        (["show", "x", "y"], "unrecognized arguments: y"),
        (["envs", "bandt"], "did you mean 'bandit'"),
        (["play", "bandt"], "did you mean 'bandit'"),
        (["play", "bandit", "--env.low_rewrd", "1"], "did you mean 'low_reward'"),
        (["play", "bandit", "--steps", "1"], "--steps means nothing here"),
        (["presets", "bandit-starpo-sgrpo"], "did you mean"),
        (["warmup", "bandit-starpo-grpo"], "--warmup.data format"),
        (["eval", "x", "--episodes", "many"], "eval.episodes"),
    ],
)
def test_a_mistake_ends_in_one_message_without_a_trace_and_status_2(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert said in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["train", "grid.yaml"],
            "grid.yaml is a study, a grid of runs, not the settings of one: `ragen study run grid.yaml`",
        ),
        (["warmup", "grid.yaml"], "`ragen study run grid.yaml`"),
        (["presets", "grid.yaml"], "`ragen study run grid.yaml`"),
        (["eval", "tiny", "--preset", "grid.yaml"], "`ragen study run grid.yaml`"),
        *(
            (
                ["study", action, "one.yaml"],
                "one run, not a study, which has axes and sizes (docs/studies.md): `ragen train one.yaml`",
            )
            for action in ("run", "report", "list")
        ),
        (["study", "run", "dotted.yaml"], "`ragen train dotted.yaml`"),
        (["study", "run", "half.yaml"], "setting 'question' is missing"),
        (["train", "one"], "did you mean the file 'one.yaml'?"),
        (["train", "ones.yaml"], "did you mean 'one.yaml'?"),
        (["study", "run", "gird.yaml"], "did you mean 'grid.yaml'?"),
        (["train", "old"], "'old' is a run: go on with it (`ragen train --resume old`)"),
        (["runs", "old"], "'old' is a run itself: `ragen show old`"),
        (["runs", "."], "lists"),
        (["runs", "outer"], "there are no runs in 'outer': did you mean 'outer/inner'?"),
    ],
)
def test_a_file_or_folder_of_another_kind_is_named_with_the_command_for_it(words, said, capsys, tmp_path, monkeypatch):
    from ragen.studies.schema import load_study

    monkeypatch.chdir(tmp_path)
    assert load_study("filter").axes
    library = Path(__file__).parents[2] / "src" / "ragen" / "studies" / "library"
    (tmp_path / "grid.yaml").write_text((library / "filter.yaml").read_text(encoding="utf-8"))
    (tmp_path / "one.yaml").write_text("preset: bandit-starpo-s-grpo-tiny\nsteps: 2\n")
    (tmp_path / "dotted.yaml").write_text("rollout.groups: 2\n")
    (tmp_path / "half.yaml").write_text("title: A study\nsettings: {steps: 2}\n")
    for run in ("old", "outer/inner/new"):
        (tmp_path / run).mkdir(parents=True)
        (tmp_path / run / "config.yaml").write_text("")
    status = main(words)
    captured = capsys.readouterr()
    if words == ["runs", "."]:
        assert (status, "old" in captured.out) == (0, True)
    else:
        assert status == 2
        assert said in captured.err


def test_nothing_at_all_shows_the_overview_and_fails(capsys):
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().out


def test_ctrl_c_outside_a_loop_leaves_quietly(monkeypatch, capsys):
    def interrupted(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "_dispatch", interrupted)
    assert main(["envs"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_n7_sigterm_counts_as_ctrl_c_everywhere_and_is_given_back(number, monkeypatch, tmp_path):
    left = tmp_path / "half-made"

    def work(words):
        left.mkdir()
        try:
            signal.raise_signal(number)
        finally:
            left.rmdir()

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(entry, "_dispatch", work)
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        assert main(["envs"]) == 130
    finally:
        signal.signal(signal.SIGINT, inherited)
    assert not left.exists()
    assert signal.getsignal(signal.SIGTERM) == before


HOSTILE = "said \x1b[2J\x1b]0;title\x07 \x9b31m \u202e and\r\tmore\n"
SPELLED = r"said \x1b[2J\x1b]0;title\x07 \x9b31m \u202e and\x0d" + "\tmore\n"


@pytest.mark.parametrize("error", [ConfigError, ModelError, EnvironmentFault, KeyboardInterrupt])
def test_no_message_steers_the_terminal(error, monkeypatch, capsys):
    """An endpoint's error message cleared the screen; so could what a model, an environment or a file says."""

    def fail(words):
        logging.getLogger("ragen").warning("%s", HOSTILE)
        tell(HOSTILE)
        complain(HOSTILE)
        raise error(HOSTILE)

    monkeypatch.setattr(entry, "_dispatch", fail)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    main(["envs"])
    told, complained = capsys.readouterr()
    assert told == SPELLED
    assert complained.count(SPELLED) == 3
    assert {c for c in complained if not c.isprintable()} == {"\n", "\t"}


def test_data_is_given_as_it_is(capsys):
    give(HOSTILE)
    assert capsys.readouterr().out == HOSTILE


def test_a_reader_that_leaves_is_not_an_error():
    code = "import sys; from ragen.cli.main import main; sys.exit(main(['presets']))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    errors = process.stderr.read().decode()
    process.stderr.close()
    process.wait()
    assert "Traceback" not in errors


START = "import sys; from ragen.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("words", ["play bandit", "envs", "nosuch", "presets nosuch"])
def test_a_closed_stream_is_no_trace(closed, words):
    done = subprocess.run(
        ["bash", "-c", f'"$0" -c "$1" {words} {closed}', sys.executable, START],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == (2 if "nosuch" in words else 0), done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp437", "utf-8"])
@pytest.mark.parametrize("words", [["play", "sokoban"], ["envs", "sokoban"], ["envs", "bandit–"]])
def test_an_encoding_that_lacks_a_character_prints_another(encoding, words, monkeypatch):
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", START, *words], input=b"Up\n", capture_output=True, check=False, env=environment
    )
    assert done.returncode == (2 if "bandit–" in words else 0), done.stderr
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("/proc/x/y", "cannot be written"),
        ("/dev/null/x", "cannot be written"),
        ("a\0b", "cannot be written"),
        ("file/x", "cannot be written"),
        (".", "is a directory"),
    ],
)
@pytest.mark.parametrize("command", [["eval", "tiny", "--json"], ["warmup", "bandit-starpo-s-grpo-tiny", "--out"]])
def test_a_place_that_cannot_be_written_is_told_before_the_work(command, place, why, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAGEN_CACHE", "/dev/null")  # the work would fail otherwise
    (tmp_path / "file").write_text("")
    assert main([*command, place]) == 2
    said = capsys.readouterr().err
    assert command[-1] in said
    assert why in said or "is not empty" in said
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


FILES = [
    ["export", "one", "--out", "there.jsonl"],
    ["plot", "one", "--out", "there.png"],
    ["report", "one", "--out", "there.html"],
    ["eval", "nothing", "--json", "there.json"],
    ["compare", "nothing", "nothing", "--json", "there.json"],
    ["compare", "nothing", "nothing", "--csv", "there.csv"],
]


@pytest.mark.parametrize("words", FILES, ids=lambda words: f"{words[0]} {words[-2]}")
def test_a_file_that_is_there_is_written_over_with_force_only(words, tmp_path, capsys, monkeypatch):
    from ragen.config import load_config
    from ragen.runs.directory import RunDirectory

    monkeypatch.chdir(tmp_path)
    RunDirectory.create(load_config("bandit-starpo-grpo-tiny", ["--run.name", "one"]))
    (tmp_path / words[-1]).write_text("precious")
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said == f"error: {words[-2]} '{words[-1]}' exists: choose another name, or give --force to write over it\n"
    assert (tmp_path / words[-1]).read_text() == "precious"
    main([*words, "--force"])  # goes on, to what else is wrong here
    assert "exists: choose" not in capsys.readouterr().err


def test_what_a_command_writes_at_its_own_place_is_made_anew(tmp_path, monkeypatch):
    from ragen.config import load_config
    from ragen.runs.directory import RunDirectory

    monkeypatch.chdir(tmp_path)
    run = RunDirectory.create(load_config("bandit-starpo-grpo-tiny", ["--run.name", "one", "--model", str(tmp_path)]))
    run.append_metrics(1, {"rollout/success": 0.5})
    for words, file in ((["report", "one"], "runs/one/report.html"), (["plot", "one"], "curve.png")):
        (tmp_path / file).write_text("old")
        assert main(words) == 0
        assert (tmp_path / file).read_bytes() != b"old"


@pytest.mark.parametrize(
    "override",
    [["--model", "tiny"], ["--model.name=tiny"], ["--model", "{name: tiny}"], ["--model", "null"], ["--model", "3"]],
)
@pytest.mark.parametrize("command", ["eval", "doctor"])
def test_a_model_named_twice_is_refused(command, override, capsys):
    assert main([command, "x", *override]) == 2
    assert "--model means nothing here" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "doctor"])
def test_a_name_that_is_no_run_and_no_model_says_both_and_the_nearest_run(command, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "first-run").mkdir(parents=True)
    (tmp_path / "runs" / "first-run" / "config.yaml").write_text("")
    assert main([command, "frist-run"]) > 0
    captured = capsys.readouterr()
    for part in ("is not a directory", "nor is it a run", "did you mean 'first-run'"):
        assert part in captured.out + captured.err


def test_a_path_beside_runs_is_no_name_of_the_hub(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ragen.models.resolve.resolve_model", lambda name: pytest.fail("the hub must not be asked"))
    for folder in ("runs", "elsewhere"):
        (tmp_path / folder / "first-run").mkdir(parents=True)
        (tmp_path / folder / "first-run" / "config.yaml").write_text("")
        assert main(["eval", f"{folder}/frist-run"]) == 2
        said = capsys.readouterr().err
        assert said.startswith(f"error: model '{folder}/frist-run' is not a directory; nor is it a run: ")
    assert "did you mean 'first-run'?" in said


VAIN = {
    "eval": ["steps", "optim.learning_rate", "rollout.groups", "rollout.temperature", "eval.also", "loss.name"],
    "eval --api http://localhost:1 --model n": [
        "steps",
        "run.threads",
        "model.dtype",
        "eval.batch",
        "rollout.force_think",
    ],
    "compare": ["filter.value", "warmup.data", "run.name"],
    "serve": ["eval.episodes", "env.max_turns", "run.threads"],
    "bench": ["rollout.groups", "env.max_turns"],
}


@pytest.mark.parametrize(("command", "key"), [(command, key) for command, keys in VAIN.items() for key in keys])
def test_a_setting_that_means_nothing_to_a_command_is_refused_with_those_that_count(command, key, capsys):
    first, *rest = command.split()
    words = [first, *rest, *([] if rest else ["tiny"] * (2 if first == "compare" else 1))]
    section, _, name = key.rpartition(".")
    forms = [[f"--{key}", "1"], [f"--{key}=1"]]
    if section and f"--{section}" not in words:  # with --api, --model is the name there
        forms.append([f"--{section}", f"{{{name}: 1}}"])
    forms += [["--loss", "dpo"]] if key == "loss.name" else []
    for form in forms:
        assert main([*words, *form]) == 2
        said = capsys.readouterr().err
        if key.startswith("env."):
            assert f"to ragen {first}" in said
        else:
            assert (
                f"setting '{key}' means nothing to ragen {first}: leave it out. The settings that count there are " in said
            )


@pytest.mark.parametrize(
    "words", [["eval", "tiny"], ["eval", "--api", "http://localhost:1", "--model", "n"], ["compare", "tiny", "tiny"]]
)
def test_a_setting_that_another_one_leaves_without_effect_is_refused_before_anything_is_loaded(words, capsys):
    assert main([*words, "--rollout.env_timeout_s", "5", "--rollout.window", "9"]) == 2
    said = capsys.readouterr().err
    assert "rollout.env_timeout_s is 5.0, but it counts only with rollout.env_workers above 0: set that, or leave" in said
    assert "rollout.window is 9, but it counts only with rollout.context 'window'" in said


def test_presets_tell_where_a_size_has_other_rules_than_its_environment(capsys):
    assert main(["presets"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    compact = "trains webshop with --env.observation compact"
    assert f"-small {compact} --env.results_per_page 4 --env.max_turns 6 --env.max_actions 6" in lines
    assert f"-tiny {compact} --env.max_turns 5 --env.max_actions 5" in lines
    assert "-small trains frozen_lake-offset with --env.max_turns 2" in lines
    assert not [line for line in lines if line.endswith("trains bandit")]


def test_all_settings_that_mean_nothing_are_told_at_once(capsys):
    assert main(["eval", "tiny", "--steps", "5", "--optim.learning_rate", "1", "--eval.seed", "3"]) == 2
    assert "settings 'steps', 'optim.learning_rate' mean nothing to ragen eval: leave them out" in capsys.readouterr().err


def test_every_setting_that_an_evaluation_is_made_of_counts_and_is_one():
    """Against the settings that make the results of an API model's evaluation what they are."""
    from ragen.cli.evaluate import COUNTING, COUNTING_OF_API
    from ragen.config import load_config
    from ragen.config.paths import fields
    from ragen.loops.compose import world_of
    from ragen.loops.endpoint import endpoint_settings
    from ragen.samplers.endpoint import Endpoint

    config = load_config({})
    made_of = endpoint_settings(world_of(config), config, Endpoint("http://localhost"), "m")
    named = {f"{section}.{name}" for section in ("eval", "rollout") for name in made_of[section]}
    workers = {"rollout.env_workers", "rollout.env_mode", "rollout.env_timeout_s"}  # they act, and change no result
    assert named | workers | {"env", "plugins"} == set(COUNTING_OF_API)
    assert set(COUNTING_OF_API) < set(COUNTING) <= set(fields())


OPTIONS = {"--resume": True, "--quiet": False, "-h": False}


@pytest.mark.parametrize(
    ("words", "own", "overrides"),
    [
        (["p", "--steps", "3", "--quiet"], ["p", "--quiet"], ["--steps", "3"]),
        (["--steps", "3", "p"], ["p"], ["--steps", "3"]),
        (["--steps=3", "p", "--resume", "r"], ["p", "--resume", "r"], ["--steps=3"]),
        (["--resume=r", "a.b=3"], ["--resume=r"], ["a.b=3"]),
        (["p", "--rollout.format_penalty", "-0.5"], ["p"], ["--rollout.format_penalty", "-0.5"]),
        (["p", "--a", "--b", "1"], ["p"], ["--a", "--b", "1"]),
        (["dir/a.b=c"], ["dir/a.b=c"], []),
        (["-h"], ["-h"], []),
    ],
)
def test_words_are_parted_into_options_and_overrides(words, own, overrides):
    assert split_overrides(words, OPTIONS) == (own, overrides)


def test_presets_lists_all_and_prints_one_in_full(capsys):
    assert main(["presets"]) == 0
    assert "frozen_lake-starpo-s-ppo-small" in capsys.readouterr().out.split()
    assert main(["presets", "bandit-starpo-s-grpo"]) == 0
    assert "clip_high: 0.28" in capsys.readouterr().out


def test_envs_tells_each_setting_with_value_and_meaning(capsys):
    from ragen.envs import environments

    assert main(["envs"]) == 0
    listed = capsys.readouterr().out
    for name in environments:
        assert name in listed
        assert main(["envs", name]) == 0
        text = capsys.readouterr().out
        for field in environments.get(name).cls.settings_class.model_fields:
            assert f"  {field} = " in text
        told = text.partition("\n\nSettings (--env.NAME VALUE):\n")[0]
        assert [
            mark for mark in ("`", "**", ":class:", "Arguments", "Settings", "module", "docstring") if mark in told
        ] == []
        for part in ("\n- Actions: ", "\n- Observation: ", "\n- Rewards", "\n- End: ", "\n- Instances: "):
            assert part in told


OWN = '''"""Text for who reads the file."""
import ragen
from ragen.envs import Environment

class Short(ragen.EnvSettings):
    max_turns: int = 3

class Plain(Environment):
    def reset(self, *, instance_seed, dynamics_seed):
        return ragen.Observation("s")
    def step(self, action):
        return ragen.Step("s", 0.0, terminated=True)
    def actions(self):
        return ("a", "b")
    def instructions(self):
        return "do"
    success = False

class Told(Plain):
    """Go to :class:`Plain`, or **not**:

    - ``a`` and `b`; 2 ** 3 ** 4 stays.
    """
    settings_class = Short
'''


@pytest.mark.parametrize(
    ("name", "text", "turns"),
    [("Plain", "", 5), ("Told", "Go to Plain, or not:\n\n- a and b; 2 ** 3 ** 4 stays.\n\n", 3)],
)
def test_envs_tells_of_an_own_class_what_its_own_text_says_without_markup(
    name: str, text: str, turns: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    file = tmp_path / "own.py"
    file.write_text(OWN)
    assert main(["envs", f"{file}:{name}"]) == 0
    head, _, settings = capsys.readouterr().out.partition("Settings (--env.NAME VALUE):\n")
    about, _, players = head.partition("Players beside an agent in its evaluation:\n")
    assert about == f"{file}:{name}: an environment of your own\n\n{text}"
    assert players.endswith(f"no optimal one: best play is not known\n\nPlay it: ragen play {file}:{name}\n\n")
    assert settings.splitlines()[:2] == [f"  max_turns = {turns}", "      policy replies an episode at most"]


def test_presets_lists_those_of_an_environment_and_says_a_word_on_each_method(capsys: pytest.CaptureFixture[str]) -> None:
    from ragen.config.load import METHODS, preset_names

    assert main(["presets", "sokoban-coords"]) == 0
    assert capsys.readouterr().out.split() == preset_names(["sokoban-coords"])
    assert main(["presets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for method in METHODS:
        assert any(line.split()[:1] == [method] and len(line.split()) > 4 for line in lines)


def test_presets_lists_every_environment_with_values_of_its_own_and_the_files_it_needs(capsys) -> None:
    root = Path(__file__).parents[2] / "src" / "ragen" / "config" / "presets"
    assert main(["presets"]) == 0
    listed = capsys.readouterr().out
    for piece in [*root.glob("small/*.yaml"), *root.glob("tiny/*.yaml")]:
        if piece.stem == "common" or piece.stem.startswith("starpo"):
            continue
        (line,) = [line for line in listed.splitlines() if line.split()[:1] == [piece.stem]]
        assert f" -{piece.parent.name} " in line
        assert f"{piece.stem}-starpo-s-grpo-{piece.parent.name}" in listed.split()
    for part in (
        "needs env.file (train.jsonl of GSM8K)",
        "--env.file FILE: needed: the problems, train.jsonl or test.jsonl of GSM8K, which are not part of ragen",
        "--env.file FILE: articles: JSON (lines) with title and text; empty = 400 made-up articles",
        "--env.products FILE: products file",
    ):
        assert part in listed


@pytest.mark.parametrize("command", ["play", "envs"])
def test_an_environment_in_a_file_can_be_played_and_told(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr("sys.stdin", io.StringIO("green\n"))
    example = Path(__file__).parents[2] / "examples" / "custom_environment.py"
    assert main([command, f"{example}:Lock"]) == 0
    assert ("bolts are open" if command == "play" else "max_turns = 3") in capsys.readouterr().out


def test_an_environment_that_a_plugin_registers_is_known_to_train(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from ragen.envs import environments

    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setattr(environments, "_items", dict(environments._items))
    file = tmp_path / "registers.py"
    file.write_text(
        f"{OWN}\nfrom ragen.envs import environments\nfrom ragen.envs.registry import EnvPreset\n"
        "environments.register('told')(EnvPreset(Told, 'told'))\n"
    )
    words = ["train", "bandit-starpo-grpo-tiny", "--plugins", str(file), "--env", "told", "--model", "no-such-model"]
    assert main(words) == 2  # what comes after the environment is looked up
    assert "model 'no-such-model' is not a directory" in capsys.readouterr().err


def test_the_module_is_the_command(tmp_path):
    said = subprocess.run(
        [sys.executable, "-m", "ragen", "--version"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert said.stdout.startswith("ragen ")


def test_the_list_of_presets_tells_where_a_size_trains_another_environment(capsys):
    assert main(["presets"]) == 0
    said = capsys.readouterr().out
    assert "-tiny trains frozen_lake-offset with --env.max_turns 2\n" in said
    assert "-small trains sokoban-offset with --env.max_turns 2" in said
    assert "trains bandit" not in said
