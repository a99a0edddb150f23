"""Policy losses that contradict other settings are refused at start, with what to set."""

from collections.abc import Mapping
from typing import Any

import pytest

from ragen.algos.losses import losses
from ragen.config import load_config
from ragen.config.schema import Config
from ragen.errors import ConfigError
from ragen.loops.loss_checks import check_loss, needs_reference
from ragen.loops.session import loss_settings, plan_session


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
        ({"loss.name": "dpo", "advantage.name": "none", "loss.tis_cap": 2.0}, r"set loss\.tis_cap to null"),
        ({"loss.name": "pg", "loss.dual_clip": 3.0}, r"set loss\.dual_clip to null, or loss\.name to 'ppo_clip'"),
        ({"loss.ratio_unit": "turn"}, r"leave loss\.ratio_unit at 'trajectory', or choose 'gspo' or 'gmpo'"),
    ],
)
def test_contradictions_are_refused_before_a_model_is_loaded(overrides: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_session(config(**overrides), env=None)


@pytest.mark.parametrize("name", sorted(losses))
def test_every_registered_loss_has_settings_that_are_accepted(name: str) -> None:
    needs = losses.get(name).needs
    check_loss(config(**{"loss.name": name}) if "advantages" in needs else with_loss(name))
    if "units" in needs:
        check_loss(config(**{"loss.name": name, "loss.ratio_unit": "turn", "loss.tis_cap": 2.0}))
    assert set(losses.get(name).settings) <= set(config().loss.model_dump())


def test_with_a_threshold_one_member_is_enough() -> None:
    check_loss(with_loss("sft", **{"rollout.members": 1, "loss.return_threshold": 0.5}))


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
