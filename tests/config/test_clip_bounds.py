"""Clip bounds: each loss begins with those of its source, unless they are set."""

from pathlib import Path
from typing import Any

import pytest

from ragen.algos.advantages import advantages
from ragen.algos.losses import losses
from ragen.config import Config, load_config
from ragen.config.load import METHODS
from ragen.config.paths import fields
from ragen.config.schema import AdvantageConfig, LossConfig
from ragen.config.yaml_text import dump_yaml

SOURCES = {"gspo": (3e-4, 4e-4), "gmpo": (0.4, 0.4)}  # arXiv 2507.18071, section 5.1; arXiv 2507.20673, (e^−0.4, e^0.4)
PPO_LIKE = ("ppo_clip", "cispo", "pg")


def bounds(config: Config) -> tuple[float, float]:
    return config.loss.clip_low, config.loss.clip_high


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", sorted(losses))
def test_another_loss_over_a_preset_begins_with_its_own_bounds_and_keeps_the_rest(name: str, method: str) -> None:
    preset = load_config(f"bandit-{method}")
    config = load_config(f"bandit-{method}", ["--loss", name])
    assert bounds(config) == SOURCES.get(name, bounds(preset))
    own = {"name", "clip_low", "clip_high"}
    assert config.loss.model_dump(exclude=own) == preset.loss.model_dump(exclude=own)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("key", ["clip_low", "clip_high"])
def test_a_bound_that_is_set_stands_and_the_other_is_the_losss_own(name: str, key: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"preset: bandit-starpo-s-grpo\nloss: {{name: {name}, {key}: 0.01}}\n")
    own = dict(zip(("clip_low", "clip_high"), SOURCES[name], strict=True)) | {key: 0.01}
    for config in (
        load_config(path),
        load_config("bandit-starpo-s-grpo", {"loss.name": name, f"loss.{key}": 0.01}),
        load_config("bandit-starpo-s-grpo", [f"--loss.{key}", "0.01", "--loss", name]),
        load_config({"loss": {"name": name}}, {f"loss.{key}": 0.01}),
        load_config(path, ["--loss", name]),
    ):
        assert (config.loss.clip_low, config.loss.clip_high) == (own["clip_low"], own["clip_high"])


@pytest.mark.parametrize("name", SOURCES)
def test_back_to_ppo_the_bounds_of_the_other_loss_are_not_ppos(name: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"loss: {{name: {name}, clip_high: 0.01}}\n")
    for other in (*PPO_LIKE, *(set(SOURCES) - {name})):
        assert bounds(load_config(path, ["--loss", other])) == SOURCES.get(other, (0.2, 0.2))


def test_between_losses_that_bound_the_same_ratio_the_bounds_stay() -> None:
    for name in PPO_LIKE:
        assert bounds(load_config({"loss": {"name": "ppo_clip", "clip_high": 0.3}}, ["--loss", name])) == (0.2, 0.3)
        assert bounds(load_config({"loss": {"clip_high": 0.3}}, ["--loss", name])) == (0.2, 0.3)


@pytest.mark.parametrize("name", sorted(losses))
def test_the_bounds_are_stored_resolved_and_read_back(name: str, tmp_path: Path) -> None:
    config = load_config("bandit-starpo-s-grpo", ["--loss", name])
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(config.model_dump(mode="json")))
    assert f"clip_high: {config.loss.clip_high:g}" in path.read_text().replace("4.0e-04", "0.0004")
    assert load_config(path) == config


@pytest.mark.parametrize(
    ("registry", "section"), [(losses, LossConfig), (advantages, AdvantageConfig)], ids=["losses", "advantages"]
)
def test_a_rules_own_defaults_are_what_its_section_begins_with(registry: Any, section: Any) -> None:
    for name in registry:
        rule = registry.get(name)
        if rule.compute.__module__.startswith("ragen."):
            settings = section.model_validate({"name": name})
            for key, own in rule.defaults().items():
                assert getattr(settings, key) == own, f"{name}: {key}"
            if "clip_high" in rule.settings and name in SOURCES:
                assert "clip_high" in rule.defaults()


def test_the_settings_page_tells_the_bounds_of_each() -> None:
    for number, key in enumerate(("loss.clip_low", "loss.clip_high")):
        about = fields()[key].description or ""
        for name, values in SOURCES.items():
            assert f"{name} {values[number]:g}" in about
