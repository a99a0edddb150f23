"""The presets carry the paper's values, and the environments they name exist."""

from importlib.resources import files

import pytest

from ragen.config.load import FAMILIES, METHODS, SIZES, load_config, preset_names
from ragen.config.paths import fields
from ragen.config.yaml_text import parse_yaml
from ragen.envs import environments
from ragen.envs.registry import environment_factory


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", METHODS)
def test_a_preset_without_suffix_carries_exactly_the_papers_values(family, method):
    config = load_config(f"{family}-{method}")
    stable, critic = "-s-" in method, method.endswith("ppo")
    assert config.env == {"name": family}
    assert (config.rollout.groups, config.rollout.members, config.optim.trajectories, config.optim.online_k) == (
        8,
        16,
        32,
        1,
    )
    assert 100 <= config.steps <= 200
    assert (config.optim.learning_rate, config.optim.critic_learning_rate, config.optim.betas) == (1e-6, 1e-5, (0.9, 0.999))
    assert (config.advantage.name, config.advantage.gamma, config.advantage.lam) == ("gae" if critic else "grpo", 1.0, 1.0)
    assert config.advantage.normalize_std
    assert config.advantage.eps == 1e-6
    assert (config.loss.clip_low, config.loss.clip_high) == (0.2, 0.28 if stable else 0.2)
    assert config.loss.kl_coef == (0.0 if stable else 0.001)
    assert config.loss.entropy_coef == 0.001
    assert config.rollout.format_penalty == -0.1
    assert (config.filter.strategy, config.filter.value) == ("top_fraction" if stable else "none", 0.25)
    assert config.filter.returns == "total"
    assert (config.rollout.temperature, config.eval.temperature, config.eval.episodes) == (1.0, 0.5, 256)
    assert config.warmup.data == "none"
    assert config.model.name == "smollm2-135m"


@pytest.mark.parametrize("name", [name for name in preset_names() if name.endswith(("-small", "-tiny"))])
def test_a_suffix_keeps_the_method_and_takes_one_optimiser_step_a_batch(name):
    config, paper = load_config(name), load_config(name.rsplit("-", 1)[0])
    assert config.loss == paper.loss
    assert config.filter.strategy == paper.filter.strategy
    assert config.advantage.name == paper.advantage.name
    assert config.optim.trajectories == config.rollout.groups * config.rollout.members
    grid = name.startswith(("frozen_lake", "sokoban"))  # where the tiny policy learns nothing from the format alone
    assert config.warmup.data == ("oracle" if grid and name.endswith("tiny") else "format")
    assert config.eval.episodes >= 128
    assert config.model.name == ("tiny" if name.endswith("tiny") else "smollm2-135m")


def test_g4_every_key_in_every_piece_is_a_setting():
    root = files("ragen.config") / "presets"
    pieces = [piece for folder in root.iterdir() for piece in folder.iterdir()]
    assert len(pieces) >= len(METHODS) + (len(SIZES) - 1) * (1 + len(FAMILIES))
    for piece in pieces:
        for section, inner in parse_yaml(piece.read_text(encoding="utf-8"), piece.name).items():
            if section != "env":
                for key in [f"{section}.{name}" for name in inner] if isinstance(inner, dict) else [section]:
                    assert key in fields(), f"{piece.name}: {key}"


def test_every_environment_a_preset_names_exists_and_takes_its_settings():
    assert set(FAMILIES) <= set(environments.names())
    for name in preset_names():
        environment_factory(load_config(name).env)()


def test_the_help_a_small_preset_gives_is_named_in_its_environment():
    assert load_config("frozen_lake-starpo-s-grpo-small").env["name"] == "frozen_lake-offset"
    assert load_config("frozen_lake-starpo-s-grpo").env["name"] == "frozen_lake"


@pytest.mark.parametrize("size", [size for size in SIZES if size])
def test_a_size_takes_nothing_away_from_what_a_variant_is_about(size):
    for name in set(environments.names()) - set(FAMILIES):
        given = load_config(f"{name}-starpo-s-grpo-{size}").env
        for key, value in environments.get(name).overrides.items():
            assert given.get(key, value) == value, (name, key)
