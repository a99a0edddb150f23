"""The keys of states that turns are compared by: one key a state, one state a key."""

import numpy as np
import pytest

from ragen.envs import environment_factory, environments
from ragen.episode import Completion, StopReason
from ragen.rollout.contexts import TokenContext
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules
from ragen.text.chat import ChatRenderer


@pytest.mark.parametrize("name", [name for name in environments if name.startswith(("bandit", "frozen", "sokoban", "2048"))])
def test_within_an_instance_a_key_names_what_is_shown_and_nothing_else(name: str) -> None:
    make = environment_factory({"name": name})
    for seed in range(3):
        shown: dict[str, str] = {}
        for play in range(6):
            env, rng = make(), np.random.default_rng(play)
            text = env.reset(instance_seed=seed, dynamics_seed=play).text
            for _ in range(12):
                key = env.anchor()
                assert isinstance(key, str)
                assert shown.setdefault(key, text) == text
                step = env.step(env.actions()[int(rng.integers(len(env.actions())))])
                text = step.observation
                if step.terminated:
                    break
        assert len(set(shown.values())) == len(shown)


def test_instances_share_no_key() -> None:
    for name in ("frozen_lake", "sokoban"):
        make = environment_factory({"name": name})
        keys = set()
        for seed in range(20):
            env = make()
            env.reset(instance_seed=seed, dynamics_seed=0)
            keys.add(env.anchor())
        assert len(keys) == 20


def test_a_turn_records_the_state_it_began_in(chatml_tokenizer) -> None:
    make = environment_factory({"name": "frozen_lake-det", "corners": True, "frozen": 1.0})
    rules = Rules(100, 10_000)
    context = TokenContext(ChatRenderer(chatml_tokenizer), rules.context)
    runner = EpisodeRunner(EpisodeSpec("f", 0, 0, 1, 2, 3), make(), context, rules)
    for answer in ("Right", "Left", "nonsense", "Right"):
        reply = f"<think>x</think><answer>{answer}</answer>"
        runner.apply(Completion((1,), (0.0,), (0.0,), reply, StopReason.END))
    keys = [turn.anchor for turn in runner.turns]
    assert keys[0] == keys[2] == keys[3] != keys[1]
    assert None not in keys
