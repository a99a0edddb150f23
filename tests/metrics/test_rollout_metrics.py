"""Metrics of collected episodes on hand-written ones."""

import itertools
import math
from dataclasses import fields
from typing import Any

import pytest

from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.learn.stats import UpdateStats
from ragen.metrics import METRICS
from ragen.metrics import rollout as r


def turn(
    text: str = "<think>go up now</think><answer>Up</answer>",
    *,
    reward: float = 0.0,
    valid: bool = True,
    actions: tuple[str, ...] = ("Up",),
    effective: int = 1,
    tokens: int = 4,
    entropy: float = 1.0,
    stop: StopReason = StopReason.END,
    **more: Any,
) -> Turn:
    completion = Completion(tuple(range(tokens)), (-0.5,) * tokens, (entropy,) * tokens, text, stop)
    info: dict[str, Any] = {"effective_actions": effective}
    return Turn((1, 2), True, completion, "obs", actions, valid, reward, 0.0 if valid else -0.1, info=info, **more)


def episode(*turns: Turn, success: bool = False, env: str = "sokoban", end: EndReason = EndReason.TERMINATED) -> Trajectory:
    return Trajectory(env, 1, 0, turns, end, success)


INVALID = {"valid": False, "actions": (), "effective": 0}
WON = episode(turn(reward=-0.1), turn(reward=10.9, tokens=2, entropy=4.0), success=True)
LOST = episode(turn(**INVALID, text="Up", stop=StopReason.LENGTH), end=EndReason.BUDGET)
SCORED = turn(reward=0.75, process_score=0.5, process_reward=0.25)
FLAT = (episode(SCORED), episode(turn(reward=1.0, actions=("Up", "Left", "Up"), effective=0)))
BATCH = (Group(0, (WON, LOST)), Group(1, FLAT))


def test_all_metrics_of_a_batch_by_hand() -> None:
    got = r.rollout_metrics(BATCH, errors=3)
    std = 10.9 / math.sqrt(2)  # returns 10.8 and −0.1
    expected = {
        "rollout/success": 1 / 4,
        "rollout/solved_groups": 1 / 2,
        "rollout/return_mean": (10.8 - 0.1 + 1 + 1) / 4,
        "rollout/return_max": 10.8,
        "rollout/task_return_mean": (10.8 + 0 + 0.75 + 1) / 4,
        "rollout/return_std": std / 2,
        "rollout/return_std_min": 0.0,
        "rollout/return_std_max": std,
        "rollout/flat_groups": 0.5,
        "rollout/valid_format": 4 / 5,
        "rollout/process_score_mean": 0.5,
        "rollout/process_reward_mean": 0.25,
        "rollout/overlong_penalty_mean": 0.0,
        "rollout/truncated_turns": 1.0,
        "rollout/effective_actions": 3 / 6,
        "rollout/turns": 5 / 4,
        "rollout/actions": (2 + 0 + 1 + 3) / 4,
        "rollout/response_tokens": 18 / 5,
        "rollout/think_words": 3.0,
        "rollout/sampled_tokens": 18.0,
        "rollout/entropy": (16 + 2 * 4.0) / 18,
        "rollout/entropy_spread": math.sqrt(4 * 0.6**2 + 2.4**2) / math.sqrt(5),  # of 1, 4, 1, 1, 1
        "rollout/distinct_2": 2 / 8,  # four times "go up", "up now"; "Up" has no pair
        "rollout/self_similarity": (6 * 1 + 4 / math.sqrt(3)) / 10,
        "rollout/common_reply": 4 / 5,
        "rollout/errors": 3.0,
    }
    assert set(got) == set(expected)
    for name, value in expected.items():
        assert got[name] == pytest.approx(value), name


def test_every_logged_name_is_defined() -> None:
    assert set(r.rollout_metrics(BATCH, errors=0)) <= set(METRICS)
    assert {n for n in METRICS if n.startswith("rollout/")} == set(r.rollout_metrics(BATCH))
    assert all(definition and not definition.endswith(".") for definition in METRICS.values())


def test_every_number_of_an_update_is_defined() -> None:
    own = {field.name for field in fields(UpdateStats)} - {"rule"} | {"skipped"}
    of_losses = {
        "clip_low",
        "clip_high",
        "clip_dual",
        "tis_factor",
        "tis_capped",
        "preference_accuracy",
        "preference_margin",
    }
    assert {f"update/{name}" for name in own | of_losses} == {name for name in METRICS if name.startswith("update/")}


def test_a17_a_truncated_reply_is_counted_apart_from_an_invalid_one() -> None:
    cut = turn("<think>a</think><answer>Ri", **INVALID, stop=StopReason.LENGTH)
    wrong = turn("no tags", **INVALID)
    long_but_valid = turn(stop=StopReason.LENGTH)
    for turns, truncated, valid in (((cut,), 1, 0.0), ((wrong,), 0, 0.0), ((long_but_valid, wrong), 1, 0.5)):
        assert r.truncated_turns([episode(*turns)]) == truncated
        assert r.valid_format_rate([episode(*turns)]) == valid
    assert episode(cut).total_return == -0.1  # the penalty, once


def test_e15_a_mixed_batch_has_means_over_each_environments_own_episodes() -> None:
    bandit = (Group(2, (episode(turn(), success=True, env="bandit"), episode(turn(), success=True, env="bandit"))),)
    found = r.by_environment([*BATCH, *bandit, Group(3, ())])
    assert set(found) == {"sokoban", "bandit"}
    assert r.rollout_metrics(found["sokoban"]) == r.rollout_metrics(BATCH)
    assert r.rollout_metrics(found["bandit"])["rollout/success"] == 1.0


def test_e15_success_is_the_recorded_flag_whatever_ended_the_episode() -> None:
    ends = [episode(turn(reward=1.0), end=end) for end in EndReason]
    assert r.success_rate(ends) == 0.0
    assert r.success_rate([*ends, episode(turn(), success=True, end=EndReason.BUDGET)]) == pytest.approx(1 / 6)


def test_f6_errors_are_counted_and_in_no_mean() -> None:
    without = r.rollout_metrics(BATCH, errors=0)
    assert {**r.rollout_metrics(BATCH, errors=7), "rollout/errors": 0.0} == without
    assert r.rollout_metrics([*BATCH, Group(9, ())]) == r.rollout_metrics(BATCH)


def test_a_metric_without_data_is_left_out_and_never_zero() -> None:
    assert r.rollout_metrics([], errors=2) == {
        "rollout/truncated_turns": 0.0,
        "rollout/sampled_tokens": 0.0,
        "rollout/errors": 2.0,
    }
    silent = r.rollout_metrics([Group(0, (episode(turn("Up", **INVALID)),))])
    assert "rollout/effective_actions" not in silent
    assert "rollout/think_words" not in silent
    assert "rollout/process_score_mean" not in silent
    assert "rollout/process_reward_mean" not in silent


def test_process_rewards_and_overlong_penalties_are_means_over_turns() -> None:
    turns = [
        turn(process_score=1.0, process_reward=0.5, overlong_penalty=-0.25),
        turn(process_score=0.0, overlong_penalty=-0.5),
        turn(),  # without a score: in the mean of penalties only
    ]
    played = [episode(*turns[:2]), episode(turns[2])]
    assert r.process_score_mean(played) == 0.5
    assert r.process_reward_mean(played) == 0.25
    assert r.overlong_penalty_mean(played) == -0.25
    assert [t.total_return for t in played] == [-0.25, 0.0]
    assert r.return_mean(played) == -0.125
    assert r.task_return_mean(played) == 0.0


def test_returns_do_not_depend_on_the_order_of_rewards() -> None:
    totals = {
        episode(*(turn(reward=x) for x in order)).total_return for order in itertools.permutations((-0.1, -0.1, 1.0, 0.3))
    }
    assert len(totals) == 1


def test_the_common_reply_is_compared_letter_for_letter() -> None:
    same = [episode(turn("a b"), turn(" a b\n")), episode(turn("A b"))]
    assert r.common_reply(same) == pytest.approx(2 / 3)
    assert math.isnan(r.common_reply([]))


def test_a_group_is_solved_by_one_member_and_members_do_not_add_up() -> None:
    won, lost = episode(turn(), success=True), episode(turn())
    groups = [Group(0, (won, won)), Group(1, (won, lost)), Group(2, (lost, lost)), Group(3, (lost, lost))]
    assert r.solved_groups(groups) == 0.5


def test_an_empty_thought_counts_as_no_words_and_a_missing_one_not_at_all() -> None:
    replies = ("<think></think><answer>Up</answer>", "<think>go up</think><answer>Up</answer>", "<answer>Up</answer>")
    assert r.think_words([episode(*map(turn, replies))]) == 1.0


def test_pass_at_k_equals_enumeration() -> None:
    for n in range(1, 7):
        for c in range(n + 1):
            for k in range(1, n + 1):
                draws = list(itertools.combinations(range(n), k))
                expected = sum(any(i < c for i in draw) for draw in draws) / len(draws)
                assert r.pass_at_k(n, c, k) == pytest.approx(expected)


def test_pass_at_k_refuses_impossible_numbers() -> None:
    for n, c, k in ((4, 5, 1), (4, -1, 1), (4, 1, 5), (4, 1, 0)):
        with pytest.raises(ValueError, match="pass@k"):
            r.pass_at_k(n, c, k)
