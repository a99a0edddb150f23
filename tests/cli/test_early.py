"""What is wrong is said before torch is loaded, which takes seconds, wherever it can be known without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ragen.cli.main import main
from ragen.config import load_config
from ragen.config.contradictions import ADVANTAGES, LOSSES
from ragen.runs.directory import RunDirectory
from ragen.runs.resume import write_settings

TINY = "bandit-starpo-s-grpo-tiny"
NOWHERE = "model 'no-such/model' is not a directory here, and the Hugging Face hub was not asked"
EARLY = [
    (["eval", "tiny", "--env", "bandt"], "unknown environment 'bandt': did you mean 'bandit'?"),
    (["eval", "tiny", "--env.low_rewrd", "1"], "did you mean 'low_reward'?"),
    (["eval", "done", "--env", "bandt"], "unknown environment 'bandt'"),
    (["eval", "done", "--env.low_rewrd", "1"], "did you mean 'low_reward'?"),
    (["eval", "begun"], "no complete checkpoint"),
    (["eval", "no-such/model"], f"{NOWHERE}, because HF_HUB_OFFLINE is set and its cache has none; nor is it a run: "),
    (["eval", "--api", "http://127.0.0.1:9/v1", "--model", "m", "--env", "bandt"], "unknown environment 'bandt'"),
    *(([*words, "--model.device", "cda"], "'model.device' is 'cda': it names no device: use one of these ('auto', 'cpu', ")
      for words in (["train", TINY], ["eval", "tiny"], ["compare", "tiny", "tiny"], ["serve", "tiny"], ["bench", "tiny"])),
    (["train", TINY, "--model", "no-such/model"], NOWHERE),
    (["train", TINY, "--advantage", "grop"], "unknown advantage 'grop': did you mean 'grpo'? One of your own is known once"),
    (["train", TINY, "--loss", "ppo_clib"], "unknown loss 'ppo_clib': did you mean 'ppo_clip'?"),
    (["train", TINY, "--reward.process", "state_mach"], "unknown process reward 'state_mach': did you mean 'state_match'?"),
    (["train", TINY, "--run.trackers", "[wandv]"], "unknown tracker 'wandv': did you mean 'wandb'?"),
    (["train", TINY, "--curriculum.stages", "[{env: {low_rewrd: 1}, until: 1}]"], "did you mean 'low_reward'?"),
    (["train", "--resume", "done", "--optim.learning_rate", "1"], "start a new run for other settings"),
    (["train", "--resume", "done", "--steps", "1"], "has done 2 steps, and steps is 1: give --steps 2 or more"),
    (["train", "--resume", "begun"], "no complete checkpoint"),
    (["train", "--resume", "done"], "all steps done after step 2"),
    (["warmup", TINY, "--model", "no-such/model"], NOWHERE),
    (["warmup", TINY, "--env", "bandt"], "unknown environment 'bandt'"),
    (["compare", "tiny", "no-such/model"], NOWHERE),
    (["compare", "tiny", "done", "--env", "bandt"], "unknown environment 'bandt'"),
    (["compare", "tiny", "done", "--env.low_rewrd", "1"], "did you mean 'low_reward'?"),
    (["serve", "no-such/model"], NOWHERE),
    (["serve", "tiny", "--rollout.max_new_tokens", "many"], "it must be a whole number of at least 1"),
    (["bench", "no-such/model"], NOWHERE),
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with two runs: one has done its two steps, the other has no checkpoint yet."""
    home = tmp_path_factory.mktemp("home")
    for name in ("done", "begun"):
        words = ["--run.root", str(home / "runs"), "--run.name", name, "--steps", "2", "--eval.episodes", "0"]
        run = RunDirectory.create(load_config(TINY, words))
        if name == "done":
            run.append_metrics(1, {})
            run.append_metrics(2, {})
            run.checkpoints.save(2, lambda folder: write_settings(folder, run.config))  # noqa: B023 (called at once)
        run.close()
    return home


@pytest.mark.parametrize(("words", "said"), EARLY, ids=lambda part: " ".join(part) if isinstance(part, list) else "")
def test_it_is_said_without_torch(words: list[str], said: str, runs: Path) -> None:
    code = (
        "import sys; from ragen.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "print('loaded:', *({'torch', 'transformers'} & set(sys.modules)))"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(runs / "hub")}
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False, cwd=runs, env=environment
    )
    assert said in done.stderr + done.stdout.replace("\n  ", " ")
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert len(done.stderr.splitlines()) == (0 if words == ["train", "--resume", "done"] else 1)


def test_the_names_of_rules_that_are_known_without_torch_are_those_there_are() -> None:
    from ragen.algos.advantages import advantages
    from ragen.algos.losses import losses

    assert list(ADVANTAGES) == advantages.names()
    assert list(LOSSES) == losses.names()


def test_a_rule_of_a_plugin_is_left_to_be_looked_up_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "own_rules.py").write_text("registered = 'elsewhere'\n")
    words = ["train", TINY, "--plugins", "own_rules.py", "--advantage", "mine", "--model", "no-such-model"]
    assert main(words) == 2
    assert "model 'no-such-model' is not a directory" in capsys.readouterr().err


def test_a_name_that_is_nothing_is_said_to_be_nothing_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["eval", "nothing"]) == 2
    said = capsys.readouterr().err
    assert said.count("'nothing'") == 1
    assert said.endswith(
        f"or a hub name like 'owner/model'; nor is it a run: there is no directory 'runs' in '{Path.cwd()}'\n"
    )
