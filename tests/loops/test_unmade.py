"""An environment whose constructor fails now and then: it costs what it was needed for, and is told in words."""

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from ragen.config import load_config
from ragen.envs.frozen_lake import FrozenLake
from ragen.errors import EnvironmentFault
from ragen.loops.compose import World
from ragen.loops.demonstrations import demonstrated
from ragen.loops.warmup import demonstration_rows
from ragen.rollout.demonstrations import demonstration_specs, optimal_player
from ragen.rollout.instances import contents
from ragen.rollout.runner import Rules
from ragen.text.chat import ChatRenderer

SPECS = demonstration_specs("lake", seed=0, count=6)
ELSEWHERE = frozenset({"another place"})


def lake(*, sound: Callable[[int], bool]) -> World:
    """A world whose n-th lake (from 1) is made where ``sound(n)``."""
    numbers = count(1)

    class Lake(FrozenLake):
        def __init__(self) -> None:
            super().__init__()
            if not sound(next(numbers)):
                raise OSError("port 8080 is in use")

    return World("lake", {}, Lake, {"name": "lake"})


@pytest.fixture
def agent(chatml_tokenizer: Any) -> Any:
    return SimpleNamespace(renderer=ChatRenderer(chatml_tokenizer), max_context=10_000)


def test_it_costs_its_demonstration(agent: Any) -> None:
    rules = Rules(100, 10_000)
    whole, none = demonstrated(SPECS, optimal_player, lake(sound=lambda _: True), ELSEWHERE, agent, rules)
    assert none == []
    # made twice a demonstration, for the content and to be played: the 1st of number 0 and the 2nd of number 2 fail
    rows, faults = demonstrated(SPECS, optimal_player, lake(sound=lambda n: n not in (1, 5)), ELSEWHERE, agent, rules)
    assert [fault.partition("Lake could not be made: OSError: port 8080 is in use")[0] for fault in faults] == [
        "whether an instance is held out cannot be known: ",
        "",
    ]
    assert all("(test_unmade.py, line " in fault for fault in faults)
    kept = [row.token_ids.tolist() for row in rows]
    assert 0 < len(kept) < len(whole)
    assert all(ids in [row.token_ids.tolist() for row in whole] for ids in kept)


@pytest.mark.parametrize("held_out", [frozenset(), ELSEWHERE])
def test_where_it_always_fails_stage_and_class_are_named(agent: Any, held_out: frozenset[str]) -> None:
    config = load_config({"preset": "frozen_lake-starpo-grpo-tiny", "warmup.demonstrations": 3})
    with pytest.raises(EnvironmentFault, match=r"^every demonstration of 'lake' failed; .*Lake could not be made: OSError"):
        demonstration_rows(config, lake(sound=lambda _: False), held_out, agent)


def test_what_is_held_out_is_known_in_spite_of_it_or_not_at_all() -> None:
    whole = contents(lake(sound=lambda _: True).make, SPECS)
    assert len(whole) == len(SPECS)
    assert contents(lake(sound=lambda n: n % 8 == 0).make, SPECS) == whole
    with pytest.raises(EnvironmentFault, match=r"^whether an instance is held out cannot be known: Lake could not be made"):
        contents(lake(sound=lambda n: n % 9 == 0).make, SPECS)
