"""What does not go together is refused before a model is loaded, with the way out."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.loops.conftest import OneWord
from torch import Tensor

import ragen
from ragen.algos.advantages import advantages, register_advantage
from ragen.algos.credit import Credit
from ragen.algos.losses import LossTerms, losses, register_loss
from ragen.config import load_config
from ragen.config.schema import AdvantageConfig
from ragen.envs import Observation
from ragen.errors import ConfigError
from ragen.loops.opening import LORA_WIDTH, memory_needed
from ragen.loops.plan import plan_session
from ragen.loops.requirements import used_settings
from ragen.models.memory import BASE_BYTES, ModelSize


class Plain(OneWord):
    """Tells no state."""

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        return Observation("?")


BASE: dict[str, Any] = {"eval.episodes": 0, "filter.strategy": "none"}
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    *(
        ({"advantage.name": name, "rollout.members": 1}, ["rollout.members is 1", f"'{name}'", "2 or more", "'gae'"])
        for name in ("grpo", "dr_grpo", "rloo", "turn_grpo", "gigpo", "pass_at_k", "reinforce_pp_baseline")
    ),
    (
        {"advantage.name": "pass_at_k", "advantage.k": 4, "rollout.members": 4},
        ["advantage.k is 4", "3 or less", "5 or more"],
    ),
    ({"advantage.name": "pass_at_k", "rollout.members": 3}, ["advantage.k is 4", "rollout.members = 3"]),
    *(
        (
            {"advantage.name": name, "loss.kl_in": "reward", "loss.kl_coef": 0.1},
            ["loss.kl_in is 'reward'", "'gae'", "'rloo'"],
        )
        for name in ("grpo", "dr_grpo", "turn_grpo", "gigpo", "pass_at_k", "reinforce_pp_baseline")
    ),
    ({"advantage.lam": 0.9}, ["advantage.lam is 0.9", "'grpo' does not use it", "'bi_level_gae' or 'gae'"]),
    ({"advantage.name": "gae", "advantage.normalize_std": False}, ["advantage.normalize_std is False", "'grpo'"]),
    ({"advantage.name": "rloo", "advantage.baseline_decay": 0.5}, ["advantage.baseline_decay is 0.5", "'reinforce'"]),
    ({"optim.critic_warmup_steps": 2}, ["optim.critic_warmup_steps is 2", "'bi_level_gae' or 'gae' or 'vapo'"]),
    ({"optim.critic": "separate"}, ["optim.critic is separate", "'gae'"]),
]
ALLOWED: list[dict[str, Any]] = [
    {"advantage.name": "gae", "rollout.members": 1, "loss.kl_in": "reward", "loss.kl_coef": 0.1},
    {"advantage.name": "reinforce", "rollout.members": 1, "advantage.baseline_decay": 0.5},
    {"advantage.name": "rloo", "loss.kl_in": "reward", "loss.kl_coef": 0.1},
    {"advantage.name": "pass_at_k", "advantage.k": 3, "rollout.members": 4},
    {"advantage.name": "vapo", "optim.critic": "separate", "optim.critic_warmup_steps": 2},
    {"advantage.name": "gigpo", "env": "frozen_lake"},
]


@pytest.mark.parametrize(("settings", "words"), REFUSED, ids=str)
def test_what_a_rule_lacks_or_leaves_unused_is_refused_with_the_way_out(settings: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        plan_session(load_config("bandit-starpo-grpo", BASE | settings), env=None)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("settings", ALLOWED, ids=str)
def test_what_goes_together_is_taken(settings: dict[str, Any]) -> None:
    plan_session(load_config("bandit-starpo-grpo", BASE | settings), env=None)


def test_gigpo_is_refused_where_the_environment_tells_no_state(tmp_path: Any) -> None:
    settings = BASE | {"advantage.name": "gigpo", "run.root": str(tmp_path)}
    with pytest.raises(ConfigError, match=r"define anchor\(\).*'turn_grpo'"):
        ragen.train("bandit-starpo-grpo", settings, env=Plain)
    assert list(tmp_path.iterdir()) == []


def test_every_setting_names_the_rules_that_use_it() -> None:
    for key, field in AdvantageConfig.model_fields.items():
        if key != "name":
            told = re.findall(r"\(([a-z_, ]+)\)$", field.description or "")
            using = sorted(rule for rule in advantages if key in used_settings(advantages.get(rule)))
            assert told == [", ".join(using)], key


def test_no_rule_has_a_setting_that_cannot_be_set() -> None:
    for rule in advantages:
        if advantages.get(rule).compute.__module__.startswith("ragen."):
            assert set(advantages.get(rule).settings) <= set(AdvantageConfig.model_fields)


@pytest.mark.parametrize("name", sorted(set(advantages) - {"none"}))
def test_another_rule_than_the_preset_s_begins_with_its_own_settings(name: str) -> None:
    config = load_config("frozen_lake-starpo-s-grpo-tiny", {"advantage.name": name, "eval.episodes": 0})
    assert config.advantage.normalize_std is (name != "grpo")
    plan_session(config, env=None)


TIGHT: dict[str, Any] = BASE | {"warmup.data": "none", "rollout.max_context": 90, "rollout.max_new_tokens": 4}


def of_wording(wording: str) -> dict[str, Any]:
    return {"env": {"name": "bandit", "wording": wording}}


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (of_wording("short"), {"rollout.max_context": 8}),
        (of_wording("verbose"), {}),
        (of_wording("short"), {"curriculum.stages": [{"env": {"wording": "verbose"}, "until": 1}]}),
        (of_wording("short"), {"eval.episodes": 2, "eval.also": ["sokoban"]}),
    ],
    ids=["context", "world", "stage", "also"],
)
def test_a_context_that_holds_no_first_prompt_is_refused_before_a_run_directory_is_made(
    mini: Path, tmp_path: Path, source: dict[str, Any], changes: dict[str, Any]
) -> None:
    settings = TIGHT | changes | {"model.name": str(mini), "run.root": str(tmp_path / "runs")}
    with pytest.raises(ConfigError, match=r"the first prompt of '\w+' has \d+ tokens.*raise rollout\.max_context"):
        ragen.train(source, settings)
    assert list(tmp_path.iterdir()) == []


def test_a_context_that_holds_the_first_prompts_is_not_refused(mini: Path, tmp_path: Path) -> None:
    """An environment that is never evaluated on may be as long as it likes."""
    settings = TIGHT | {"model.name": str(mini), "run.root": str(tmp_path), "eval.also": ["sokoban"], "steps": 0}
    assert ragen.train(of_wording("short"), settings).steps == 0


@pytest.mark.parametrize(
    ("changes", "bytes_a_parameter"),
    [
        ({}, 16),  # weights, gradient and two moments
        ({"loss.kl_coef": 0.1}, 20),  # and a reference
        ({"loss.name": "dpo", "advantage.name": "none"}, 20),
        ({"loss.name": "kto", "advantage.name": "none"}, 20),
        ({"advantage.name": "gae"}, 16),  # a value head costs next to nothing
        ({"advantage.name": "gae", "optim.critic": "separate"}, 32),
        ({"loss.kl_coef": 0.1, "model.lora.rank": 1}, 4 + 12 * LORA_WIDTH * 2 * 50 / 1_000_000),  # the reference is free
    ],
)
def test_d8_the_memory_a_run_needs_counts_reference_critic_and_adapters(
    changes: dict[str, Any], bytes_a_parameter: float
) -> None:
    size = ModelSize(parameters=1_000_000, hidden=50, layers=2, vocabulary=10)
    config = load_config({}, {"model.dtype": "float32", "optim.microbatch_tokens": 300, **changes})
    activations = 4 * 300 * 2 * 16 * 50 + 4 * 4 * 256 * 10
    needed = memory_needed(size, config, torch.device("cpu"))
    assert needed == BASE_BYTES + activations + round(bytes_a_parameter * 1_000_000)


@pytest.mark.parametrize("section", ["advantage", "loss"])
def test_a_rule_of_ones_own_with_another_default_than_its_section_is_not_overruled_in_silence(section: str) -> None:
    def credit(rewards: Tensor, mask: Tensor, *, gamma: float = 0.9) -> Credit:
        raise NotImplementedError

    def loss(advantages: Tensor, weights: Tensor, *, clip_high: float = 0.5) -> LossTerms:
        raise NotImplementedError

    key, own, begins = ("gamma", 0.9, 1.0) if section == "advantage" else ("clip_high", 0.5, 0.2)
    name = f"another_default_{section}"
    registry: Any = advantages if section == "advantage" else losses
    (register_advantage(name)(credit) if section == "advantage" else register_loss(name)(loss))
    try:
        settings = {"eval.episodes": 0, f"{section}.name": name}
        with pytest.raises(ConfigError, match=rf"{section}\.{key} is {begins} where it is not set.*has {own} in its sig"):
            plan_session(load_config({}, settings), env=None)
        for value in (own, begins):
            plan_session(load_config({}, settings | {f"{section}.{key}": value}), env=None)
    finally:
        del registry._items[name]


def test_problems_of_loss_and_advantage_rule_are_told_at_once() -> None:
    wrong = {"rollout.members": 1, "loss.beta": 0.3, "optim.critic": "separate", "advantage.lam": 0.9}
    with pytest.raises(ConfigError) as error:
        plan_session(load_config("bandit-starpo-grpo", BASE | wrong), env=None)
    for word in ("loss.beta is 0.3", "rollout.members is 1", "optim.critic is separate", "advantage.lam is 0.9"):
        assert word in str(error.value)
