"""Process reward and overlong penalty of recorded turns: what is paid, when, and who hears of it."""

from collections.abc import Sequence
from typing import Any

import pytest

from ragen.envs import Environment, EnvSettings, Fact, Observation, Step
from ragen.envs.frozen_lake import FrozenLake, FrozenLakeSettings
from ragen.envs.sokoban import SokobanEnv
from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.errors import ConfigError
from ragen.rewards import ProcessReward, Reasoning, process_rewards
from ragen.rollout.contexts import TokenContext
from ragen.rollout.demonstrations import demonstrate, optimal_player
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules
from ragen.rollout.segments import segments
from ragen.rollout.shaping import Shaping
from ragen.text.chat import ChatRenderer

PLAN, STATE = process_rewards.get("plan_agreement"), process_rewards.get("state_match")


class Corridor(Environment):
    """Walk from 0 to 3; the action words change with the place, 'walk on' has two words."""

    def __init__(self) -> None:
        super().__init__(EnvSettings(max_turns=4, max_actions=8, max_actions_per_turn=3))

    @property
    def success(self) -> bool:
        return self.place >= 3

    def reset(self, *, instance_seed: int, dynamics_seed: int) -> Observation:
        self.place = 0
        return Observation("Place 0.")

    def step(self, action: str) -> Step:
        self.place += 1 if action == "walk on" else 0
        return Step(f"Place {self.place}.", float(self.success), terminated=self.success, info={"success": self.success})

    def actions(self) -> tuple[str, ...]:
        return ("walk", "walk on") if self.place == 0 else ("wait", "walk on")

    def instructions(self) -> str:
        return "Walk."

    def facts(self) -> tuple[Fact, ...]:
        return (Fact(r"place (\d)", (str(self.place),)),)


@pytest.fixture
def renderer(chatml_tokenizer: Any) -> ChatRenderer:
    return ChatRenderer(chatml_tokenizer)


def spec(seed: int = 0) -> EpisodeSpec:
    return EpisodeSpec("corridor", 0, 0, seed, 0, 0)


def played(renderer: ChatRenderer, replies: Sequence[str], shaping: Shaping | None = None, **more: Any) -> Trajectory:
    """An episode with these replies; one id a character, so that lengths are plain."""
    rules = Rules(more.pop("max_new_tokens", 200), 100_000, shaping=shaping or Shaping(), **more)
    runner = EpisodeRunner(spec(), Corridor(), TokenContext(renderer, rules.context), rules)
    for text in replies:
        numbers = (0.0,) * len(text)
        runner.apply(Completion((5,) * len(text), numbers, numbers, text, StopReason.END))
    runner.end = runner.end or EndReason.BUDGET
    return runner.trajectory(0)


def reply(thought: str, answer: str) -> str:
    return f"<think>{thought}</think><answer>{answer}</answer>"


def scores(trajectory: Trajectory) -> list[float | None]:
    return [turn.process_score for turn in trajectory.turns]


def test_a_plan_is_matched_in_the_state_the_reply_saw_and_scored_against_what_ran(renderer: ChatRenderer) -> None:
    replies = [
        reply("I walk on, then walk.", "walk on || walk"),  # 'walk' is no action any more after the first move
        reply("wait; walk on", "walk on"),
        reply("walk on -> walk on", "walk on || walk on"),  # the end comes after the first
    ]
    trajectory = played(renderer, replies, Shaping(PLAN, 0.5))
    assert [turn.actions for turn in trajectory.turns] == [("walk on", "walk"), ("walk on",), ("walk on",)]
    assert scores(trajectory) == [1, 1 / 2, 1 / 2]
    assert [turn.process_reward for turn in trajectory.turns] == [0.5, 0.25, 0.25]
    assert trajectory.task_return == 1
    assert trajectory.total_return == 2
    assert sum(float(row.rewards.sum()) for row in segments(trajectory)) == 2


def test_facts_are_those_of_the_state_before_the_actions_ran(renderer: ChatRenderer) -> None:
    replies = [reply("place 0", "walk on"), reply("place 2", "walk on"), reply("place 2", "walk on")]
    assert scores(played(renderer, replies, Shaping(STATE, 1.0))) == [1, 0, 1]


def test_a_turn_without_a_valid_answer_earns_no_process_reward_and_pays_the_format_penalty(renderer: ChatRenderer) -> None:
    replies = [reply("place 0", "fly"), "place 0", "<think>place 0</think>walk on"]
    trajectory = played(renderer, replies, Shaping(STATE, 1.0))
    assert scores(trajectory) == [0, 0, 0]
    assert trajectory.total_return == pytest.approx(-0.3)


def test_without_a_process_reward_there_is_no_score_and_with_coefficient_0_it_is_only_recorded(
    renderer: ChatRenderer,
) -> None:
    replies = [reply("walk on", "walk on")]
    assert scores(played(renderer, replies)) == [None]
    watched = played(renderer, replies, Shaping(PLAN, 0.0))
    assert scores(watched) == [1]
    assert watched.total_return == watched.task_return == 0


def test_the_overlong_penalty_counts_each_replys_tokens_against_the_limit_of_a_reply(renderer: ChatRenderer) -> None:
    short, long = reply("x", "walk on"), reply("x" * 9, "walk on")
    limit = len(long)
    shaping = Shaping(overlong_buffer=16, overlong_coef=0.5)
    total = len(short + long) + 10  # leaves the last reply 10 tokens
    trajectory = played(renderer, [short, long, "walk"], shaping, max_new_tokens=limit, max_trajectory_tokens=total)
    assert [turn.overlong_penalty for turn in trajectory.turns] == [-0.5 * (16 - 8) / 16, -0.5, 0]
    assert [turn.penalty for turn in trajectory.turns] == [0, 0, -0.1]
    assert trajectory.total_return == pytest.approx(-0.25 - 0.5 - 0.1)
    assert trajectory.task_return == 0


def test_nothing_of_it_is_told_so_the_prompts_are_those_of_evaluation(renderer: ChatRenderer) -> None:
    replies = [reply("walk on", "walk on"), reply("walk", "walk on"), "walk on"]
    shaping = Shaping(PLAN, 0.7, overlong_buffer=50, overlong_coef=0.3)
    plain, shaped = (played(renderer, replies, rule, max_new_tokens=50) for rule in (None, shaping))
    assert shaped.total_return != plain.total_return
    assert [(t.prompt_ids, t.observation) for t in shaped.turns] == [(t.prompt_ids, t.observation) for t in plain.turns]
    assert "Reward 0." in shaped.turns[1].observation


def test_the_rule_gets_the_environments_text_and_facts_only_if_it_asks(renderer: ChatRenderer) -> None:
    seen: list[Reasoning] = []

    def rule(reasoning: Reasoning, actions: Sequence[str]) -> float:
        seen.append(reasoning)
        return 0.0

    for needs in (False, True):
        played(renderer, [reply(" on ", "walk on")], Shaping(ProcessReward("r", rule, needs_facts=needs), 1.0))
    fact = Fact(r"place (\d)", ("0",))
    assert seen == [Reasoning("on", (), "Place 0."), Reasoning("on", (), "Place 0.", (fact,))]


def test_facts_that_fail_cost_the_episode_and_invent_nothing(
    renderer: ChatRenderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Corridor, "facts", lambda self: 1 / 0)
    rules = Rules(200, 100_000, shaping=Shaping(STATE, 1.0))
    runner = EpisodeRunner(spec(), Corridor(), TokenContext(renderer, rules.context), rules)
    runner.apply(Completion((5,), (0.0,), (0.0,), reply("place 0", "walk on"), StopReason.END))
    assert runner.end is EndReason.ERROR
    assert "Corridor.facts() raised ZeroDivisionError" in str(runner.fault)
    assert runner.turns[-1].process_score is None


def test_a_rule_that_leaves_the_range_stops_the_run(renderer: ChatRenderer) -> None:
    with pytest.raises(ConfigError, match="'r' gave 2"):
        played(renderer, [reply("", "walk on")], Shaping(ProcessReward("r", lambda *_: 2.0, needs_facts=False), 1.0))


@pytest.mark.parametrize(("hint", "expected"), [("offset", 1.0), ("coords", 1.0), ("none", 0.0)])
def test_frozen_lake_demonstrations_state_the_truth_where_they_restate_the_hint(
    renderer: ChatRenderer, hint: Any, expected: float
) -> None:
    def lake() -> FrozenLake:
        return FrozenLake(FrozenLakeSettings(hint=hint, success_rate=1.0, max_actions_per_turn=1))

    turns: list[Turn] = []
    for seed in range(8):
        rules = Rules(400, 100_000, shaping=Shaping(STATE, 1.0))
        turns += demonstrate(spec(seed), lake, renderer, rules, optimal_player).turns
    assert len(turns) > 16
    assert {turn.process_score for turn in turns} == {expected}


def test_sokoban_demonstrations_name_exactly_what_they_do(renderer: ChatRenderer) -> None:
    rules = Rules(400, 100_000, shaping=Shaping(PLAN, 1.0))
    for seed in range(4):
        turns = demonstrate(spec(seed), SokobanEnv, renderer, rules, optimal_player).turns
        assert {turn.process_score for turn in turns} == {1.0}
