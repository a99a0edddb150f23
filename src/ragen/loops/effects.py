"""Settings that cannot have the effect they were set for, which a new run refuses, with the way out.

Not among them: what a shipped preset sets for all its methods or sizes (clip bounds, critic learning rate, ``filter.value``,
``warmup``, ``eval``), and what stands beside a switch that is off by the user's own word (``eval.episodes 0``,
``echo_trap.action off``, ``rollout.thinking false``). The settings of a rule's own are in ``requirements`` and
``loss_checks``.
"""

from collections.abc import Iterator

from ragen.algos.advantages import advantages
from ragen.algos.losses import losses
from ragen.config.conditions import ROLLOUT, Condition, without_effect
from ragen.config.schema import Config
from ragen.loops.loss_checks import PAIRED


def _critic(config: Config) -> bool:
    return "values" in advantages.get(config.advantage.name).needs


def _mixed(config: Config) -> bool:
    return max(config.loss.sft_coef, config.loss.sft_coef_end) > 0


def _weighed(config: Config) -> bool:
    loss = config.loss
    per_token = not (PAIRED | {"labels"}) & set(losses.get(loss.name).needs)
    return per_token or loss.entropy_coef > 0 or (loss.kl_coef > 0 and loss.kl_in == "loss")


CRITIC = "an advantage rule with a critic (advantage.name 'gae', 'bi_level_gae' or 'vapo')"
CONDITIONS = (
    Condition(("model.lora.alpha", "model.lora.targets"), "model.lora.rank above 0", lambda c: c.model.lora.rank > 0),
    Condition(("rollout.explore_min",), "rollout.explore below 1", lambda c: c.rollout.explore < 1),
    *ROLLOUT,
    Condition(
        ("reward.coef",),
        "a reward.process other than 'none'",
        lambda c: c.reward.process != "none" or c.reward.coef == 0,  # nothing is asked for
    ),
    Condition(
        ("reward.overlong_coef",),
        "reward.overlong_buffer above 0",
        lambda c: c.reward.overlong_buffer > 0 or c.reward.overlong_coef == 0,
    ),
    Condition(("reward.overlong_buffer",), "reward.overlong_coef above 0", lambda c: c.reward.overlong_coef > 0),
    Condition(
        ("curriculum.window",),
        "a stage with advance_at in curriculum.stages",
        lambda c: any(stage.advance_at is not None for stage in c.curriculum.stages),
    ),
    Condition(("filter.metric",), "a filter.strategy other than 'none'", lambda c: c.filter.strategy != "none"),
    Condition(("replay.ratio", "replay.max_age"), "replay.size above 0", lambda c: c.replay.size > 0),
    Condition(("advantage.eps",), "advantage.normalize_std true", lambda c: c.advantage.normalize_std),
    Condition(
        ("loss.sft_decay_steps", "loss.sft_weighting", "loss.sft_demonstrations"),
        "loss.sft_coef or loss.sft_coef_end above 0",
        _mixed,
    ),
    Condition(
        ("loss.aggregation",),
        "a loss that weighs tokens: loss.name another than 'dpo', 'step_dpo' and 'kto', or loss.entropy_coef or "
        "loss.kl_coef above 0",
        _weighed,
    ),
    Condition(
        ("loss.length_constant",), "loss.aggregation 'trajectory-sum'", lambda c: c.loss.aggregation == "trajectory-sum"
    ),
    Condition(("loss.kl_in", "loss.kl_estimator"), "loss.kl_coef above 0", lambda c: c.loss.kl_coef > 0),
    Condition(("loss.value_clip",), CRITIC, _critic),
    Condition(
        ("loss.value_coef",),
        f"optim.critic 'head' (a separate critic takes 1) and {CRITIC}",
        lambda c: _critic(c) and c.optim.critic == "head",
    ),
    Condition(
        ("diagnostics.prompts", "diagnostics.replies"), "diagnostics.every above 0", lambda c: c.diagnostics.every > 0
    ),
    Condition(
        ("echo_trap.max_rollbacks", "echo_trap.learning_rate_factor", "echo_trap.filter_value"),
        "echo_trap.action 'rollback'",
        lambda c: c.echo_trap.action == "rollback",
    ),
)


def effect_problems(config: Config) -> list[str]:
    """What is wrong with each setting away from its default that has no effect here, and where nothing can be trained."""
    return [*(told for _, told in without_effect(config, CONDITIONS)), *_nothing_trained(config)]


def _nothing_trained(config: Config) -> Iterator[str]:
    optim, loss, trap = config.optim, config.loss, config.echo_trap
    if 0 < config.steps <= optim.critic_warmup_steps:
        yield (
            f"optim.critic_warmup_steps is {optim.critic_warmup_steps} and steps is {config.steps}, so the policy would "
            "never learn: set optim.critic_warmup_steps below steps"
        )
    if loss.name == "kto" and loss.good_weight == loss.bad_weight == 0:
        yield "loss.good_weight and loss.bad_weight are 0, so 'kto' would learn nothing: set one of them above 0"
    if trap.action == "rollback" and trap.learning_rate_factor == 1 and trap.filter_value in (None, config.filter.value):
        yield (
            "echo_trap.learning_rate_factor is 1 and echo_trap.filter_value changes nothing, so after a rollback the "
            "same steps would come again: set echo_trap.learning_rate_factor below 1, or echo_trap.filter_value to another "
            f"than filter.value ({config.filter.value:g})"
        )
