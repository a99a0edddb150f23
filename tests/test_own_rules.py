"""The guide to rules of one's own is true: its file registers them, they keep what all rules must, and they train."""

import importlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from ragen.algos.advantages import advantages
from ragen.algos.losses import losses
from ragen.config import load_config
from ragen.envs import environments
from ragen.errors import ConfigError
from ragen.loops.plan import plan_session, with_environment
from ragen.modules import load_plugins

GUIDE = (Path(__file__).parents[1] / "docs" / "rules" / "README.md").read_text(encoding="utf-8")
FILE, SCRIPT = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
NO_MODULES = (
    "",
    ".",
    "..",
    ".x",
    "../x",
    "a/b",
    "no-such",
    "x\0y",
    "ä" * 300,
    "x" * 5000,
    " ",
    "a..b",
    "json.",
)
(PROJECT,) = re.findall(r"```toml\n(.*?)```", GUIDE, flags=re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the guide's file, which is forgotten afterwards."""
    (tmp_path / "my_rules.py").write_text(FILE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("my_rules", None)
    advantages._items.pop("median", None)
    losses._items.pop("spo", None)


@pytest.fixture
def rules(folder: Path) -> ModuleType:
    return importlib.import_module("my_rules")


def test_the_estimator_of_the_guide_does_what_it_says(rules: ModuleType) -> None:
    """Group 0 returns 1, 2, 6 (median 2), the last over two rows; group 1 returns 4; a row without a token takes no part."""
    rewards = torch.tensor([[0.0, 1.0], [2.0, 9.0], [2.0, 0.0], [1.0, 3.0], [4.0, 0.0], [7.0, 7.0]])
    mask = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1], [0, 1], [0, 0]], dtype=torch.bool)
    rewards[4] = torch.tensor([9.0, 4.0])
    arrays = {
        "rewards": rewards,
        "mask": mask,
        "trajectory": torch.tensor([5, 6, 7, 7, 8, 9]),
        "group": torch.tensor([0, 0, 0, 0, 1, 1]),
    }
    credit = advantages.get("median")(arrays, {})
    assert credit.advantages.tolist() == [[-1, -1], [0, 0], [4, 4], [4, 4], [0, 0], [0, 0]]
    assert credit.value_targets is None


def test_the_loss_of_the_guide_has_ppos_gradient_at_1_and_none_at_1_plus_epsilon(rules: ModuleType) -> None:
    nan = float("nan")
    for ratio, advantage, gradient in ((1.0, 2.0, -2.0), (1.5, 2.0, 0.0), (0.5, -2.0, 0.0), (1.0, -2.0, 2.0)):
        new = torch.tensor([[ratio, 1.0]]).log().requires_grad_()
        arrays = {
            "logprobs": new,
            "old_logprobs": torch.tensor([[0.0, nan]]),
            "advantages": torch.tensor([[advantage, nan]]),
        }
        terms = losses.get("spo")({**arrays, "weights": torch.tensor([[1.0, 0.0]])}, {"clip_high": 0.5})
        terms.loss.backward()
        assert new.grad is not None
        assert new.grad[0].tolist() == pytest.approx([gradient, 0.0], abs=1e-6)


@pytest.mark.e2e
def test_the_script_of_the_guide_trains_with_both(
    folder: Path, ragen_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {}
    small = (
        '{"rollout.groups": 2, "rollout.members": 4, "eval.episodes": 4, "warmup.demonstrations": 32, "warmup.epochs": 1, '
    )
    exec(compile(SCRIPT.replace("settings = {", f"settings = {small}"), "README.md", "exec"), names)
    result = names["result"]
    assert [len(result.history), result.history[0]["update/beyond"]] == [2, 0.0]  # one optimiser step a batch: ρ = 1
    stored = (result.run / "config.yaml").read_text()
    assert "name: median" in stored
    assert "name: spo" in stored


def test_a_plugin_makes_its_rules_known_and_is_found_again_from_another_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(folder)])
    config = load_config(
        {"preset": "bandit-starpo-grpo-tiny"},
        {"plugins": "my_rules.py", "advantage": "median", "loss": "spo", "loss.clip_high": 0.3},
    )
    assert config.plugins == (str(folder / "my_rules.py"),)
    monkeypatch.chdir("/")
    plan = plan_session(config, env=None)
    assert plan.estimator.needs == ("rewards", "mask", "trajectory", "group")
    plan_session(config, env=None)  # once a process: a second run registers nothing twice
    [module] = [name for name in sys.modules if name.startswith("ragen_file") and name.endswith("my_rules")]
    sys.modules.pop(module)


def test_a_plugin_may_register_the_environment_that_the_run_is_of(folder: Path) -> None:
    text = """from ragen.envs import EnvPreset, environments
from ragen.envs.bandit import Bandit
environments.register("slots")(EnvPreset(Bandit, "as bandit"))
"""
    (folder / "my_envs.py").write_text(text)
    config = load_config({"preset": "bandit-starpo-grpo-tiny"}, {"plugins": [str(folder / "my_envs.py")], "env": "slots"})
    assert plan_session(with_environment(config, None), env=None).world.name == "slots"
    environments._items.pop("slots")


def test_a_plugin_that_the_script_has_imported_is_not_run_again(rules: ModuleType, folder: Path) -> None:
    load_plugins((str(folder / "my_rules.py"),))
    assert advantages.get("median") is not None


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my_rule.py", "there is no file '.*my_rule.py': did you mean 'my_rules.py'"),
        ("my_rules", "there is no module 'my_rules': did you mean 'my_rules.py'"),
        ("no.such", "there is no module 'no.such': name a file that ends in .py, or a module that Python finds"),
        *((wrong, r"^plugins: there is no module '.*': name a file that ends in \.py, or a module") for wrong in NO_MODULES),
        ("./my_rules", "there is no module './my_rules': did you mean 'my_rules.py'"),
        ("~nosuchuser/x.py", r"^there is no folder '~nosuchuser'$"),
        ("loop.py", r"^there is no file '.*loop\.py': "),
        ("x" * 5000 + ".py", "cannot be read: File name too long$"),
        ("faulty.py", r"faulty.py' cannot be loaded: ZeroDivisionError: division by zero \(.*faulty.py, line 1\)"),
        ("leaving.py", r"leaving.py' cannot be loaded: SystemExit: 0 \(.*leaving.py, line 1\)"),
        ("leaving", r"leaving' cannot be loaded: SystemExit: 0 \(.*leaving.py, line 1\)"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_says_why(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(folder)])
    (folder / "faulty.py").write_text("1 / 0")
    (folder / "leaving.py").write_text("raise SystemExit(0)")
    if name == "leaving":  # a module on Python's path
        monkeypatch.syspath_prepend(str(folder))
    (folder / "loop.py").symlink_to("loop.py")
    monkeypatch.setitem(sys.modules, "barred", None)  # as Python marks what must not be imported
    with pytest.raises(ConfigError, match=words):
        load_plugins(load_config({"plugins": [name]}).plugins)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("advantages.get('median').needs", "('rewards', 'mask', 'trajectory', 'group')"),
        ("losses.get('spo').settings", "('clip_high',)"),
    ],
)
def test_an_installed_package_s_entry_points_are_found_from_the_command_line(folder: Path, part: str, told: str) -> None:
    """As `pip install` leaves it: the modules, and beside them the metadata with the guide's entry points."""
    points = tomllib.loads(PROJECT)["project"]["entry-points"]
    assert set(points) == {advantages.group, losses.group}
    meta = folder / "my_rules-1.0.dist-info"
    meta.mkdir()
    (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: my-rules\nVersion: 1.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in named.items()) for group, named in points.items()
    ]
    (meta / "entry_points.txt").write_text("\n".join(lines))
    code = (
        "from importlib.metadata import entry_points; from ragen.algos.advantages import advantages\n"
        "from ragen.algos.losses import losses\n"
        f"print({part}, [point.load().__name__ for r in (advantages, losses) for point in entry_points(group=r.group)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{told} ['median', 'spo']"


@pytest.mark.parametrize("registry", [advantages, losses], ids=["advantages", "losses"])
@pytest.mark.parametrize("name", ["grop", "gsop", "quite another"])
def test_an_unknown_rule_is_told_where_ones_own_come_from(registry: Any, name: str) -> None:
    own = r"One of your own is known once plugins names its file, .*entry point.*docs/rules/README\.md\)\.$"
    with pytest.raises(ConfigError, match=rf"unknown .* '{name}': (did you mean '\w+'\?|known: .*\w\.) {own}"):
        registry.get(name)
