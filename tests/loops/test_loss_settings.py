"""Policy losses that contradict other settings are refused at start, with what to set."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import ragen
from ragen.algos.losses import losses
from ragen.config import load_config
from ragen.config.schema import Config
from ragen.envs import Step
from ragen.envs.bandit import Bandit
from ragen.errors import ConfigError
from ragen.loops.demonstrations import imitation_coef, mixed_specs
from ragen.loops.loss_checks import loss_problems, needs_reference
from ragen.loops.plan import plan_session
from ragen.loops.session import loss_settings
from ragen.runs.events import read_trajectories
from ragen.runs.listener import Silent


def config(**overrides: Any) -> Config:
    return load_config("bandit-starpo-s-grpo-tiny", {"eval.episodes": 0, "filter.strategy": "none"} | overrides)


def with_loss(name: str, **more: Any) -> Config:
    return config(**{"loss.name": name, "advantage.name": "none"}, **more)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"loss.name": "ppo_clib"}, r"unknown loss 'ppo_clib': did you mean 'ppo_clip'"),
        ({"loss.name": "dpo"}, r"'dpo', which takes no advantages, but advantage\.name is 'grpo': set it to 'none'"),
        ({"loss.name": "kto", "advantage.name": "gae"}, r"advantage\.name is 'gae': set it to 'none'"),
        ({"advantage.name": "none"}, r"'ppo_clip', which needs advantages, but advantage\.name is 'none'"),
        (
            {"loss.name": "sft", "advantage.name": "none", "loss.kl_coef": 0.1, "loss.kl_in": "reward"},
            r"set loss\.kl_in to 'loss'",
        ),
        (
            {"loss.name": "dpo", "advantage.name": "none", "rollout.members": 1},
            r"rollout\.members is 1: set it to 2 or more$",
        ),
        (
            {"loss.name": "sft", "advantage.name": "none", "rollout.members": 1},
            r"set it to 2 or more, or loss\.return_threshold to a number",
        ),
        ({"loss.name": "kto", "advantage.name": "none", "filter.strategy": "soft"}, r"choose another strategy"),
        (
            {"loss.name": "dpo", "advantage.name": "none", "loss.tis_cap": 2.0},
            r"loss\.tis_cap is 2\.0.*does not use it: leave it out, or set loss\.name to 'cispo' or",
        ),
        ({"loss.name": "pg", "loss.dual_clip": 3.0}, r"does not use it: leave it out, or set loss\.name to 'ppo_clip'$"),
        ({"loss.sft_coef_end": 0.1}, r"loss\.sft_decay_steps is 0: set it to the steps it takes"),
        (
            {"loss.sft_coef": 0.1, "loss.sft_demonstrations": 1, "optim.trajectories": 32},
            r"up to 4 optimiser steps.*4 or more",
        ),
        (
            {"loss.sft_coef": 0.1, "loss.sft_demonstrations": 4, "optim.trajectories": 32, "replay.size": 8},
            r"up to 6 optimiser steps.*6 or more",
        ),
        ({"loss.name": "pg", "replay.size": 8}, r"replay\.size is 8.*no ratio.*use 'cispo' or .*'ppo_clip'$"),
        ({"loss.name": "dpo", "advantage.name": "none", "loss.sft_coef": 0.1}, r"set loss\.sft_coef and sft_coef_end to 0"),
        ({"loss.beta": 0.3}, r"set loss\.name to 'dpo' or 'kto' or 'step_dpo'$"),
        ({"loss.name": "sft", "advantage.name": "none", "loss.pairing": "all"}, r"set loss\.name to 'dpo' or 'step_dpo'$"),
        ({"loss.return_threshold": 0.0}, r"loss\.return_threshold is 0\.0.*set loss\.name to 'kto' or 'sft'$"),
        ({"loss.ratio_unit": "turn"}, r"loss\.ratio_unit is turn.*set loss\.name to 'gmpo' or 'gspo'$"),
    ],
)
def test_contradictions_are_refused_before_a_model_is_loaded(overrides: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_session(config(**overrides), env=None)


@pytest.mark.parametrize("name", sorted(losses))
def test_every_registered_loss_has_settings_that_are_accepted(name: str) -> None:
    needs = losses.get(name).needs
    assert not list(loss_problems(config(**{"loss.name": name}) if "advantages" in needs else with_loss(name)))
    if "units" in needs:
        assert not list(loss_problems(config(**{"loss.name": name, "loss.ratio_unit": "turn", "loss.tis_cap": 2.0})))
    assert set(losses.get(name).settings) <= set(config().loss.model_dump())


class Untold(Bandit):
    """A bandit without an oracle."""

    def plan(self) -> None:
        return None


def test_demonstrations_need_an_oracle() -> None:
    with pytest.raises(ConfigError, match=r"loss\.sft_coef is 0\.5, but 'Untold' has no oracle to show"):
        plan_session(config(**{"loss.sft_coef": 0.5}), env=Untold)
    plan_session(config(**{"loss.sft_coef": 0.5}), env=None)


def test_mu_goes_from_start_to_end_and_demonstrations_are_fresh_each_step() -> None:
    mixed = config(
        **{"loss.sft_coef": 0.8, "loss.sft_coef_end": 0.0, "loss.sft_decay_steps": 4, "loss.sft_demonstrations": 3}
    )
    assert [imitation_coef(mixed, step) for step in (0, 1, 4, 9)] == pytest.approx([0.8, 0.6, 0.0, 0.0])
    first, second, last = (mixed_specs(mixed, "bandit", step) for step in (0, 1, 4))
    assert (len(first), len(second), len(last)) == (3, 3, 0)
    assert not {s.instance_seed for s in first} & {s.instance_seed for s in second}
    assert first == mixed_specs(mixed, "bandit", 0)
    assert mixed_specs(config(), "bandit", 0) == ()


def test_with_a_threshold_one_member_is_enough() -> None:
    assert not list(loss_problems(with_loss("sft", **{"rollout.members": 1, "loss.return_threshold": 0.5})))


def test_a_reference_is_loaded_for_a_kl_term_and_for_losses_that_compare_with_it() -> None:
    assert [needs_reference(with_loss(name)) for name in ("dpo", "step_dpo", "kto", "sft")] == [True, True, True, False]
    assert [needs_reference(config(**{"loss.kl_coef": weight})) for weight in (0.0, 0.01)] == [False, True]


def test_settings_reach_the_update() -> None:
    found = loss_settings(
        with_loss(
            "kto",
            **{
                "loss.beta": 0.3,
                "loss.pairing": "all",
                "loss.pair_margin": 0.2,
                "loss.return_threshold": 0.7,
                "loss.ratio_unit": "turn",
                "loss.tis_cap": 4.0,
                "loss.bad_weight": 2.0,
                "loss.dual_clip": 5.0,
            },
        )
    )
    assert (found.name, found.ratio_unit, found.tis_cap) == ("kto", "turn", 4.0)
    assert (found.own["beta"], found.own["bad_weight"], found.own["dual_clip"]) == (0.3, 2.0, 5.0)
    preferences = found.preferences
    assert (preferences.pairing, preferences.margin, preferences.threshold) == ("all", 0.2, 0.7)


class Flat(Bandit):
    """Every pull pays the same: all groups are flat."""

    def step(self, action: str) -> Step:
        return dataclasses.replace(super().step(action), reward=0.0)


@pytest.mark.e2e
@pytest.mark.parametrize(("credit", "resample"), [("grpo", 0), ("ppo", 0), ("grpo", 1)])
def test_where_all_groups_are_flat_the_demonstrations_alone_teach(tmp_path: Path, credit: str, resample: int) -> None:
    """With a critic too, whose advantages are not 0 in a flat group; and where no group is a candidate of the filter."""
    said: list[str] = []

    class Listener(Silent):
        def on_message(self, text: str) -> None:
            said.append(text)

    result = ragen.train(
        f"bandit-starpo-s-{credit}-tiny",
        {
            "run.root": str(tmp_path),
            "warmup.data": "none",
            "eval.episodes": 0,
            "steps": 2,
            "filter.max_flat_steps": 1,
            "rollout.groups": 2,
            "rollout.members": 2,
            "rollout.resample": resample,
            "rollout.max_new_tokens": 4,
            "rollout.format_penalty": -0.5,  # of every reply: four tokens hold no valid answer
            "loss.sft_coef": 0.5,
            "loss.entropy_coef": 0.0,
        },
        env=Flat,
        listener=Listener(),
    )
    assert len(result.history) == 2
    assert sum("the demonstrations alone teach: every group flat" in text for text in said) == 2
    stored = read_trajectories(result.run / "trajectories" / "step-000001.jsonl")
    assert {item.advantages for item in stored} == {None}  # none of them trained
    first, second = result.history
    assert first["update/optimizer_steps"] >= 1
    assert second["update/sft_loss"] < first["update/sft_loss"]
    assert first["update/policy_loss"] == 0
