"""Settings that are each possible, but not together: every such problem of a config is told at once, with what to set."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ragen.config.bounds import COUNT

if TYPE_CHECKING:
    from ragen.config.schema import Config

ADVANTAGES = (
    *("bi_level_gae", "dr_grpo", "gae", "gigpo", "grpo", "none", "pass_at_k", "reinforce", "reinforce_pp"),
    *("reinforce_pp_baseline", "rloo", "turn_grpo", "vapo"),
)
LOSSES = ("cispo", "dpo", "gmpo", "gspo", "kto", "pg", "ppo_clip", "sft", "step_dpo")
"""The rules that come with RAGEN: here, where torch is not loaded, only to be named."""
COMPARING = ("dr_grpo", "gigpo", "grpo", "pass_at_k", "reinforce_pp_baseline", "rloo", "turn_grpo")
"""The advantage rules that compare the members of a group."""


def contradictions(config: "Config") -> Iterator[str]:
    """What contradicts what, each with the ways out."""
    yield from _together(config)
    yield from _single_members(config)
    yield from _shaping(config)
    yield from _instances(config)
    yield from _filter_value(config, "filter.value", config.filter.value)
    if config.loss.kl_in == "loss" and config.loss.kl_estimator == "k1" and config.loss.kl_coef > 0:
        yield "loss.kl_estimator 'k1' has zero expected gradient as a loss: use k2 or k3, or loss.kl_in 'reward'"
    if config.echo_trap.action == "rollback":
        yield from _rollback(config)


def _together(config: "Config") -> Iterator[str]:
    """Counts that are each possible, and whose product is played or trained on in one go."""
    rollout, evaluation, warmup = config.rollout, config.eval, config.warmup
    pairs = (
        ("rollout.groups", rollout.groups, "rollout.members", rollout.members, "episodes a step"),
        ("eval.episodes", evaluation.episodes, "eval.samples", evaluation.samples, "episodes an evaluation"),
        ("warmup.demonstrations", warmup.demonstrations, "warmup.epochs", warmup.epochs, "episodes to train on"),
    )
    for first, many, second, times, what in pairs:
        if many * times > COUNT:
            yield (
                f"{first} {many} · {second} {times} are {many * times:,} {what}, and there can be {COUNT:,}: lower one of "
                "the two"
            )


def _single_members(config: "Config") -> Iterator[str]:
    """What a group of one member cannot have; the advantage rule alone is checked where rules are known."""
    rollout, strategy = config.rollout, config.filter.strategy
    if rollout.members > 1:
        return
    ways = []
    if strategy not in ("none", "soft"):
        ways.append("filter.strategy to 'none'")
        yield (
            f"rollout.members is {rollout.members}, so every group has reward std 0 and filter.strategy '{strategy}' would "
            "drop them all: set rollout.members to 2 or more, or filter.strategy to 'none'"
        )
    if rollout.resample:
        ways.append("rollout.resample to 0")
        yield (
            f"rollout.resample is {rollout.resample}, but with rollout.members 1 every group is flat: set "
            "rollout.members to 2 or more, or rollout.resample to 0"
        )
    if ways and config.advantage.name in COMPARING:
        yield (
            f"rollout.members is {rollout.members}, and advantage.name '{config.advantage.name}' compares the members of a "
            f"group: set rollout.members to 2 or more, or, beside {' and '.join(ways)}, advantage.name to a rule that does "
            "not, such as 'reinforce' or 'gae'"
        )


def _shaping(config: "Config") -> Iterator[str]:
    reward, rollout = config.reward, config.rollout
    if reward.process != "none" and not rollout.thinking:
        yield (
            f"reward.process '{reward.process}' reads the reasoning, but rollout.thinking is false: set "
            "rollout.thinking to true, or reward.process to 'none'"
        )
    if reward.overlong_buffer > rollout.max_new_tokens:
        yield (
            f"reward.overlong_buffer is {reward.overlong_buffer}, but a reply has at most "
            f"{rollout.max_new_tokens} tokens: set it to rollout.max_new_tokens or less"
        )


def _instances(config: "Config") -> Iterator[str]:
    rollout = config.rollout
    needed = rollout.groups * (1 + rollout.resample)
    if 0 < rollout.instances < needed:
        yield (
            f"rollout.instances is {rollout.instances}, but a step may play {needed} different ones (rollout.groups · "
            f"(1 + rollout.resample)): set rollout.instances to {needed} or more, or to 0 for always new ones"
        )
    if rollout.explore < 1 and not rollout.instances:
        yield (
            f"rollout.explore is {rollout.explore}, but rollout.instances is 0: new instances have no history to be "
            "passed over for; set rollout.instances to a number, or rollout.explore to 1"
        )
    if config.replay.size and (rollout.top_p < 1 or rollout.top_k or rollout.min_p):
        yield (
            f"replay.size is {config.replay.size}, but replay compares the learner with recorded log-probabilities, which "
            "truncated sampling changes: set rollout.top_p 1, rollout.top_k 0 and rollout.min_p 0, or replay.size 0"
        )


def _rollback(config: "Config") -> Iterator[str]:
    trap, run = config.echo_trap, config.run
    if run.checkpoint_every == 0:
        yield (
            "echo_trap.action is 'rollback', but run.checkpoint_every is 0, so there is nothing to return to: set "
            "run.checkpoint_every (for example to 10), or echo_trap.action to 'stop'"
        )
    elif run.keep < (needed := 1 + math.ceil((2 * trap.window - 1) / run.checkpoint_every)):
        yield (
            f"echo_trap.action 'rollback' returns {2 * trap.window} steps or more (2 · echo_trap.window), but only "
            f"{run.keep} checkpoints, one every {run.checkpoint_every} steps, are kept: set run.keep to {needed} or more"
        )
    if trap.filter_value is None:
        return
    if config.filter.strategy in ("none", "soft"):
        yield (
            f"echo_trap.filter_value is {trap.filter_value}, but filter.strategy '{config.filter.strategy}' has no "
            "value: choose another strategy (top_fraction with filter.value 1 keeps all), or leave it out"
        )
    else:
        yield from _filter_value(config, "echo_trap.filter_value", trap.filter_value)


def _filter_value(config: "Config", key: str, value: float) -> Iterator[str]:
    strategy = config.filter.strategy
    if strategy in ("top_fraction", "top_p", "min_p") and value > 1:
        yield f"{key} is {value}: '{strategy}' takes a share in (0, 1]"
    if strategy == "top_k" and not (value >= 1 and value.is_integer()):
        yield f"{key} is {value}: 'top_k' takes a number of groups (1, 2, …)"
