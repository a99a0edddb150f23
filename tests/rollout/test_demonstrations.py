"""Demonstrations: exact ids of valid replies, the forced opener given only once, reference players within the budgets."""

from typing import Any

import numpy as np
import pytest

from ragen.envs import environment_factory
from ragen.episode import EndReason
from ragen.rollout.demonstrations import demonstrate, demonstration_specs, optimal_player, play, players_of, random_player
from ragen.rollout.instances import contents, evaluation_specs, started, training_specs
from ragen.rollout.runner import EpisodeSpec, Rules
from ragen.rollout.segments import segments
from ragen.text.chat import ChatRenderer


@pytest.mark.parametrize("forced", ["", "<think>"])
@pytest.mark.parametrize("name", ["bandit", "frozen_lake-offset", "sokoban"])
def test_a_demonstration_is_valid_in_every_turn_and_has_one_opener(chatml_tokenizer: Any, forced: str, name: str) -> None:
    renderer = ChatRenderer(chatml_tokenizer, forced=forced)
    make = environment_factory({"name": name})
    for spec in demonstration_specs(name, seed=1, count=4):
        trajectory = demonstrate(spec, make, renderer, Rules(300, 10_000), random_player)
        assert trajectory.turns
        assert all(turn.valid and turn.penalty == 0 and turn.invalid_actions == 0 for turn in trajectory.turns)
        for segment in segments(trajectory):
            text = chatml_tokenizer.decode(segment.token_ids)
            assert "<think><think>" not in text
            replies = text.split("<|im_start|>assistant\n")[1:]
            assert all(reply.startswith("<think>") for reply in replies)
            assert segment.token_ids[segment.mask][-1] == renderer.end_of_turn


def test_oracle_demonstrations_succeed_where_success_is_possible(chatml_tokenizer: Any) -> None:
    make = environment_factory({"name": "frozen_lake-det"})
    renderer = ChatRenderer(chatml_tokenizer)
    for spec in demonstration_specs("frozen_lake-det", seed=0, count=20):
        trajectory = demonstrate(spec, make, renderer, Rules(300, 10_000), optimal_player)
        assert trajectory.success
        assert trajectory.end is EndReason.TERMINATED


def test_players_without_text_keep_the_budgets() -> None:
    make = environment_factory({"name": "sokoban", "max_turns": 2, "max_actions": 3, "max_actions_per_turn": 5})
    asked: list[int] = []

    def many(env: Any, rng: np.random.Generator) -> list[str]:
        asked.append(1)
        return ["Up"] * 9

    success, total = play(evaluation_specs("s", episodes=1, samples=1, seed=0)[0], make, many)
    assert not success
    assert total == pytest.approx(-0.3)
    assert len(asked) == 1
    assert {"random", "optimal"} <= set(players_of(started(make)))


def test_c14_training_never_meets_an_evaluation_instance() -> None:
    settings = {"name": "frozen_lake", "size": 2, "frozen": 0.5}
    make = environment_factory(settings)
    held_out = contents(make, evaluation_specs("", episodes=6, samples=1, seed=1000))
    assert held_out
    specs = training_specs("x", make, seed=0, first=0, instances=range(40), members=2, held_out=held_out)
    assert not contents(make, specs) & held_out
    free = training_specs("x", make, seed=0, first=0, instances=range(40), members=2, held_out=frozenset())
    assert contents(make, free) & held_out  # the check above had something to do


def test_e1_groups_share_an_instance_and_every_group_has_chances_of_its_own() -> None:
    make = environment_factory({"name": "sokoban"})

    def specs(first: int, instances: list[int]) -> list[EpisodeSpec]:
        return training_specs("s", make, seed=3, first=first, instances=instances, members=3, held_out=frozenset())

    whole = specs(0, [0, 1, 2, 3])
    assert [s.group for s in whole] == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert len({s.instance_seed for s in whole}) == 4
    assert whole[6:] == specs(2, [2, 3])  # what was played before does not matter
    again = specs(4, [0])
    assert {s.instance_seed for s in again} == {s.instance_seed for s in whole[:3]}
    assert len({s.dynamics_seed for s in whole + again}) == len({s.sampling_seed for s in whole + again}) == 15


def test_variants_of_one_environment_are_evaluated_on_the_same_instances() -> None:
    plain, symbols = (evaluation_specs(n, episodes=5, samples=2, seed=1000) for n in ("sokoban", "sokoban-symbols"))
    assert [s.instance_seed for s in plain] == [s.instance_seed for s in symbols]
    a, b = (contents(environment_factory({"name": n}), plain) for n in ("sokoban", "sokoban-symbols"))
    assert a == b
