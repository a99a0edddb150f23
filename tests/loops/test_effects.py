"""A setting that cannot have an effect is refused before a model is loaded; so is a run that can train nothing."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ragen.algos.advantages import advantages
from ragen.config import load_config
from ragen.config.load import preset_names
from ragen.config.paths import fields
from ragen.errors import ConfigError
from ragen.loops.effects import CONDITIONS, effect_problems
from ragen.loops.loss_checks import USED_BY
from ragen.loops.plan import plan_session
from ragen.loops.requirements import CRITIC_SETTINGS
from ragen.studies.grid import plan_study
from ragen.studies.schema import parse_study

LORA = {"model.lora.rank": 8}
MIXED = {"loss.sft_coef": 0.5}
KL = {"loss.kl_coef": 0.1}
HEAD = {"advantage.name": "gae"}
DPO = {"loss.name": "dpo", "advantage.name": "none", "loss.entropy_coef": 0.0}
BACK = {"echo_trap.action": "rollback", "filter.strategy": "top_fraction", "run.keep": 9, "run.checkpoint_every": 10}
# setting: a value away from its default, where that counts, and what takes the effect away where the base does not
CASES: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "model.lora.alpha": (16, LORA, {}),
    "model.lora.targets": ("q_proj", LORA, {}),
    "rollout.explore_min": (0.2, {"rollout.explore": 0.5, "rollout.instances": 64}, {}),
    "rollout.window": (2, {"rollout.context": "window"}, {}),
    "rollout.env_mode": ("thread", {"rollout.env_workers": 2}, {}),
    "rollout.env_timeout_s": (5.0, {"rollout.env_workers": 2}, {}),
    "reward.coef": (0.3, {"reward.process": "plan_agreement"}, {}),
    "reward.overlong_coef": (0.3, {"reward.overlong_buffer": 16}, {}),
    "reward.overlong_buffer": (16, {}, {"reward.overlong_coef": 0.0}),
    "curriculum.window": (5, {"curriculum.stages": [{"env": {"max_turns": 1}, "advance_at": 0.5}]}, {}),
    "filter.metric": ("entropy", {"filter.strategy": "top_p"}, {}),
    "replay.ratio": (1.0, {"replay.size": 8}, {}),
    "replay.max_age": (2, {"replay.size": 8}, {}),
    "advantage.eps": (1e-4, {"advantage.normalize_std": True}, {"advantage.normalize_std": False}),
    "loss.sft_decay_steps": (10, MIXED, {}),
    "loss.sft_weighting": ("phi", MIXED, {}),
    "loss.sft_demonstrations": (64, MIXED, {}),
    "loss.aggregation": ("token-mean", {}, DPO),
    "loss.length_constant": (100.0, {"loss.aggregation": "trajectory-sum"}, {}),
    "loss.kl_in": ("reward", KL, {}),
    "loss.kl_estimator": ("k2", KL, {}),
    "loss.value_clip": (None, HEAD, {}),
    "loss.value_coef": (1.0, HEAD, {}),
    "diagnostics.prompts": (4, {"diagnostics.every": 5}, {}),
    "diagnostics.replies": (4, {"diagnostics.every": 5}, {}),
    "echo_trap.max_rollbacks": (3, BACK, {}),
    "echo_trap.learning_rate_factor": (0.25, BACK, {}),
    "echo_trap.filter_value": (0.1, BACK, {}),
}
# what always counts, is checked elsewhere, is set by shipped presets whatever the method, or stands beside an off switch
ALWAYS = {
    "": "seed steps env plugins",
    "model": "name device dtype trust_remote_code",
    "model.lora": "rank",
    "rollout": "groups members resample instances explore max_new_tokens max_trajectory_tokens "
    "max_context temperature top_p top_k min_p stop_strings context thinking force_think format_penalty env_workers",
    "reward": "process",
    "curriculum": "stages",
    "filter": "strategy value returns max_flat_steps",
    "replay": "size",
    "advantage": "name",
    "loss": "name clip_low clip_high sft_coef sft_coef_end entropy_coef kl_coef",
    "optim": "learning_rate critic_learning_rate betas weight_decay warmup_steps grad_clip "
    "trajectories online_k microbatch_tokens",
    "warmup": "data demonstrations epochs batch learning_rate",
    "eval": "every episodes samples temperature batch seed also",
    "diagnostics": "every",
    "echo_trap": "action window drop spike solved",
    "run": "root name checkpoint_every keep trajectories_every threads trackers",
}


def load(*more: dict[str, Any]) -> Any:
    """The plain GRPO bandit, without evaluation and KL, with further settings."""
    base = {"eval.episodes": 0, "loss.kl_coef": 0.0}
    for each in more:
        base |= each
    return load_config("bandit-starpo-grpo", base)


@pytest.mark.parametrize("key", CASES)
def test_a_changed_setting_without_effect_is_refused_and_taken_where_it_counts(key: str) -> None:
    value, counting, without = CASES[key]
    with pytest.raises(ConfigError) as error:
        plan_session(load({key: value}, without), env=None)
    assert f"{key} is {value}, but it counts only with " in str(error.value)
    assert f"set that, or leave {key} out ({fields()[key].default})" in str(error.value)
    assert effect_problems(load({key: value}, counting)) == []
    assert effect_problems(load(without)) == []


def test_every_setting_is_known_to_count_always_or_is_checked() -> None:
    """A new setting belongs into the table, or here among those that always count."""
    assert {key for condition in CONDITIONS for key in condition.keys} == set(CASES)
    by_rule = {f"loss.{key}" for key in USED_BY} | {f"optim.{key}" for key in CRITIC_SETTINGS}
    by_rule |= {key for key in fields() if key.startswith("advantage.") and key != "advantage.name"}
    always = {f"{section}.{name}".lstrip(".") for section, names in ALWAYS.items() for name in names.split()}
    assert always | set(CASES) | by_rule == set(fields())
    assert not always & (set(CASES) | by_rule)


def test_a_separate_critic_takes_no_value_coef_and_a_preference_loss_with_a_bonus_has_an_aggregation() -> None:
    with pytest.raises(ConfigError, match=r"loss\.value_coef is 1\.0.*a separate critic takes 1"):
        plan_session(load(HEAD, {"optim.critic": "separate", "loss.value_coef": 1.0}), env=None)
    for more in ({"loss.entropy_coef": 0.1}, KL):
        assert effect_problems(load(DPO, {"loss.aggregation": "token-mean"}, more)) == []
    for name in ("step_dpo", "kto"):
        with pytest.raises(ConfigError, match=r"loss\.aggregation is token-mean"):
            plan_session(load(DPO, {"loss.name": name, "loss.aggregation": "token-mean"}), env=None)
    assert effect_problems(load(DPO, {"loss.name": "sft", "loss.aggregation": "token-mean"})) == []


def test_the_rules_with_a_critic_are_those_that_are_named() -> None:
    (words,) = {each.words for each in CONDITIONS if each.keys == ("loss.value_clip",)}
    own = [name for name in advantages if advantages.get(name).compute.__module__.startswith("ragen.")]
    assert all((f"'{name}'" in words) is ("values" in advantages.get(name).needs) for name in own)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (HEAD | {"steps": 5, "optim.critic_warmup_steps": 5}, r"optim\.critic_warmup_steps is 5 and steps is 5.*below"),
        (
            {"loss.name": "kto", "advantage.name": "none", "loss.good_weight": 0.0, "loss.bad_weight": 0.0},
            r"loss\.good_weight and loss\.bad_weight are 0.*one of them above 0",
        ),
        (BACK | {"echo_trap.learning_rate_factor": 1.0}, r"echo_trap\.learning_rate_factor is 1 .*below 1, or echo_trap\.f"),
        (
            BACK | {"echo_trap.learning_rate_factor": 1.0, "filter.value": 0.5, "echo_trap.filter_value": 0.5},
            r"another than filter\.value \(0\.5\)",
        ),
    ],
    ids=str,
)
def test_a_run_that_can_train_nothing_new_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_session(load(settings), env=None)


@pytest.mark.parametrize(
    "settings",
    [
        HEAD | {"steps": 6, "optim.critic_warmup_steps": 5},
        HEAD | {"steps": 0, "optim.critic_warmup_steps": 5},
        {"loss.name": "kto", "advantage.name": "none", "loss.good_weight": 0.0},
        BACK | {"echo_trap.learning_rate_factor": 1.0, "filter.value": 0.5, "echo_trap.filter_value": 0.25},
    ],
    ids=str,
)
def test_a_run_that_trains_something_is_taken(settings: dict[str, Any]) -> None:
    assert effect_problems(load(settings)) == []


def test_a_resumed_run_keeps_settings_that_no_longer_count() -> None:
    """`--resume RUN --echo_trap.action warn`, as the end of a stopped run advises: it cannot change the rest."""
    stopped = load(BACK, {"echo_trap.filter_value": 0.1, "echo_trap.action": "warn"})
    with pytest.raises(ConfigError, match=r"echo_trap\.filter_value"):
        plan_session(stopped, env=None)
    plan_session(stopped, env=None, resumed=True)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_has_an_effect(name: str) -> None:
    assert effect_problems(load_config(name)) == []


@pytest.mark.parametrize("name", sorted(file.name for file in (files("ragen.studies") / "library").iterdir()))
def test_every_shipped_study_has_an_effect(name: str) -> None:
    study = parse_study(Path(str(files("ragen.studies") / "library" / name)).read_text(encoding="utf-8"), name)
    for size in study.sizes:
        for run in plan_study(study, name, size).runs().values():
            assert effect_problems(run.config) == []
