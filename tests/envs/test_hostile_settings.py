"""Settings at their extremes: each is refused with its name, or the environment works."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen.envs import environment_factory, environments
from ragen.envs.frozen_lake.planning import FARTHEST, affordable, is_exact
from ragen.episode import Completion, StopReason
from ragen.errors import ConfigError
from ragen.rollout.contexts import ContextPolicy, MessageContext
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules
from ragen.text.prompts import reply_text

NAMES = ("bandit", "countdown", "sudoku", "2048", "frozen_lake", "sokoban", "webshop", "sql", "wiki", "gsm8k")
NUMBERS = (-1, 0, 10**18, 10**30, -(10**30), float("nan"), float("inf"), 1e308, -1e308)
TEXTS = ("\x00", "\ud800", "~nobody_x/y", "||", "<answer>", "P_OGX\u200b", "\u202e_OGX√", None, {}, [1])
WORDS = (
    ["\ud800", "b", "c", "d"],
    ["a\nb", "b", "c", "d"],
    ["\u200b", "b", "c", "d"],
    ["Up ", "b", "c", "d"],
    [["a\nb", "c"]],
)
SLOW = {("webshop", "catalogue_seed"), ("frozen_lake", "max_actions_per_turn")}  # they work, in seconds a value


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("gsm8k") / "train.jsonl"
    file.write_text(json.dumps({"question": "What is 3 and 4?", "answer": "It is <<3+4=7>>7.\n#### 7"}))
    return file


def played(name: str, settings: dict[str, Any]) -> None:
    """A turn of best play, or of a random action, in the first instance."""
    env = environment_factory({"name": name, **settings})()
    spec = EpisodeSpec(name, 0, 0, instance_seed=2**62, dynamics_seed=2**62, sampling_seed=0)
    runner = EpisodeRunner(spec, env, MessageContext(ContextPolicy()), Rules(2**31, 2**40, thinking=False))
    assert runner.fault is None, runner.fault
    turn = env.plan() or env.actions()[:1]
    calls = env.tools() is not None
    runner.apply(Completion((), (), (), reply_text("", turn, thinking=False, calls=calls), StopReason.END))
    assert runner.fault is None, runner.fault
    runner.context.shown.encode()


@pytest.mark.parametrize("name", NAMES)
def test_an_extreme_setting_is_refused_by_its_name_or_works(name: str, problems: Path) -> None:
    needed = {"file": str(problems)} if name == "gsm8k" else {}
    for key in environments.get(name).cls.settings_class.model_fields:
        for value in (*NUMBERS, *TEXTS, *WORDS):
            if (name, key) in SLOW and not isinstance(value, float):
                continue
            try:
                played(name, {**needed, key: value})
            except ConfigError as error:
                assert key in str(error), (key, value)  # noqa: PT017 (a setting may work as well)


def test_the_words_of_actions_are_to_be_seen_in_full() -> None:
    for name in ("frozen_lake", "sokoban"):
        for words in WORDS[:4]:
            with pytest.raises(ConfigError, match=r"env\.action_words"):
                environment_factory({"name": name, "action_words": words})
    for pair in (["a\nb", "c"], ["a", " b"], ["a", "b\u200b"], ["a\x1b", "b"]):
        with pytest.raises(ConfigError, match="must be two different words, printable"):
            environment_factory({"name": "bandit", "pairs": [pair]})


def test_budgets_that_nobody_could_plan_for_get_a_plan_that_is_not_called_best() -> None:
    env = environment_factory({"name": "frozen_lake", "size": 3, "max_turns": 10**6, "max_actions": 10**6})()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.best_success() is None
    assert env.plan()


def test_what_is_planned_for_is_what_can_be_used() -> None:
    assert affordable(4, 5, 10, 5) == (5, 10, 5)
    assert affordable(4, 50, 10, 5) == (10, 10, 5)  # a turn takes an action at least
    assert affordable(4, 2, 10, 3) == (2, 6, 3)
    assert affordable(4, 10**9, 10**9, 1) == (FARTHEST, FARTHEST, 1)
    assert affordable(20, 5, 10, 7) == (5, 10, 5)
    assert all(is_exact(4, *budgets) for budgets in ((5, 10, 5), (50, 10, 5), (2, 10, 3), (5, 10, 7), (3, 3, 10**6)))
    assert not any(is_exact(4, *budgets) for budgets in ((5, 10, 8), (65, 65, 1), (10**9, 10**9, 10**9)))
    assert not is_exact(20, 5, 10, 7)
