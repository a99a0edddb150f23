"""What holds for every registered process reward, and for one of an outside package."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs.facts import Fact
from ragen.errors import ConfigError
from ragen.rewards import ProcessReward, Reasoning, process_rewards

FACTS = st.lists(st.sampled_from([Fact(r"a (\w+)", ("b",)), Fact(r"b (\w+)", ("a", "c"))]), max_size=3).map(tuple)
WORDS = st.lists(st.sampled_from("abc"), max_size=8).map(tuple)


@pytest.mark.parametrize("name", process_rewards.names())
@given(thought=WORDS.map(" ".join) | st.text(), named=WORDS, actions=WORDS, facts=FACTS)
def test_a_score_is_in_0_1_and_depends_only_on_what_it_is_given(
    name: str, thought: str, named: tuple[str, ...], actions: tuple[str, ...], facts: tuple[Fact, ...]
) -> None:
    reasoning = Reasoning(thought, named, "seen", facts)
    rule = process_rewards.get(name)
    assert 0 <= rule(reasoning, actions) <= 1
    assert rule(reasoning, actions) == rule(reasoning, actions)


@pytest.mark.parametrize("score", [1.5, -0.1, float("nan"), float("inf")])
def test_a_score_outside_is_an_error_that_names_the_rule(score: float) -> None:
    rule = ProcessReward("mine", lambda reasoning, actions: score, needs_facts=False)
    with pytest.raises(ConfigError, match=rf"'mine' gave {score}.*\[0, 1\]"):
        rule(Reasoning("", (), ""), ())


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown process reward 'plan_agrement': did you mean 'plan_agreement'"):
        process_rewards.get("plan_agrement")


def test_entry_points_have_a_group_of_their_own() -> None:
    assert process_rewards.group == "ragen.process_rewards"


def test_the_room_loads_no_torch() -> None:
    code = "import sys, ragen.rewards; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
