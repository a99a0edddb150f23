"""Everything that does not go together is told at once, with the ways out."""

import itertools
from typing import Any

import pytest

from ragen.algos.advantages import advantages
from ragen.config import load_config
from ragen.config.contradictions import COMPARING
from ragen.errors import ConfigError

PRESET = "bandit-starpo-s-grpo"
WRONG: dict[str, tuple[dict[str, Any], str]] = {  # a word of the message → the settings it is about
    "rollout.max_new_tokens or less": ({"reward.overlong_buffer": 257}, "reward.overlong_buffer is 257"),
    "k2 or k3": ({"loss.kl_estimator": "k1", "loss.kl_coef": 0.1}, "loss.kl_estimator 'k1'"),
    "always new ones": ({"rollout.instances": 3}, "rollout.instances is 3"),
    "truncated sampling": ({"replay.size": 8, "rollout.top_k": 5}, "replay.size is 8"),
    "share in (0, 1]": ({"filter.value": 2}, "filter.value is 2"),
    "nothing to return to": ({"echo_trap.action": "rollback", "run.checkpoint_every": 0}, "echo_trap.action is 'rollback'"),
    "every group is flat": ({"rollout.members": 1, "rollout.resample": 2}, "rollout.resample is 2"),
    "reads the reasoning": ({"reward.process": "plan_agreement", "rollout.thinking": False}, "'plan_agreement'"),
}


@pytest.mark.parametrize("pair", list(itertools.combinations(WRONG, 2)), ids=" + ".join)
def test_two_contradictions_are_both_told(pair: tuple[str, str]) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(PRESET, WRONG[pair[0]][0] | WRONG[pair[1]][0])
    for word in pair:
        assert word in str(error.value)
        assert WRONG[word][1] in str(error.value)


@pytest.mark.parametrize("name", sorted(advantages))
def test_a_group_of_one_is_told_of_the_filter_and_of_every_rule_that_compares_members(name: str) -> None:
    settings = {"rollout.members": 1, "advantage.name": name}
    with pytest.raises(ConfigError) as error:
        load_config(PRESET, settings)
    said = str(error.value)
    assert "filter.strategy 'top_fraction' would drop them all" in said
    compares = "group" in advantages.get(name).needs
    assert (f"advantage.name '{name}' compares the members" in said) == compares
    assert ("beside filter.strategy to 'none', advantage.name to a rule" in said) == compares
    assert load_config(PRESET, settings | {"filter.strategy": "none"}).rollout.members == 1


def test_the_rules_named_without_torch_are_those_whose_signatures_ask_for_groups() -> None:
    own = [name for name in advantages if advantages.get(name).compute.__module__.startswith("ragen.")]
    assert [name for name in own if "group" in advantages.get(name).needs] == sorted(COMPARING)
