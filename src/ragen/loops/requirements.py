"""What the chosen advantage rule needs of the rest of the settings: asked before a model is loaded."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ragen.algos.advantages import KL_IN_REWARD, AdvantageEstimator, advantages
from ragen.algos.rule import Rule
from ragen.config.schema import AdvantageConfig, Config, LossConfig, OptimConfig
from ragen.rollout.instances import started
from ragen.rollout.runner import EnvironmentFactory

CRITIC_SETTINGS = ("critic", "critic_warmup_steps")  # of `optim`, beside its learning rate
BASELINE_SETTINGS = ("baseline_decay",)  # of the running mean that a rule with a baseline is given


def rule_problems(config: Config, rule: AdvantageEstimator, make_env: EnvironmentFactory) -> Iterator[str]:
    """Where a run cannot give its advantage rule what it needs, or its settings would go unused, with what to set."""
    yield from _unmet(config, rule, make_env)
    yield from _unused(config, rule)
    yield from other_defaults("advantage", config.advantage, rule)


def used_settings(rule: AdvantageEstimator) -> tuple[str, ...]:
    """The settings of the section ``advantage`` that a rule uses."""
    return rule.settings + (BASELINE_SETTINGS if "baseline" in rule.needs else ())


def other_defaults(section: str, settings: AdvantageConfig | LossConfig, rule: Rule[Any]) -> Iterator[str]:
    """A setting left alone that begins with another value than its rule asks for: neither is taken in silence."""
    for key, own in rule.defaults().items():
        if key in type(settings).model_fields and key not in settings.model_fields_set and getattr(settings, key) != own:
            yield (
                f"{section}.{key} is {getattr(settings, key)} where it is not set, but {section}.name '{settings.name}' has "
                f"{own} in its signature: set {section}.{key} to the one you mean"
            )


def _unmet(config: Config, rule: AdvantageEstimator, make_env: EnvironmentFactory) -> Iterator[str]:
    name, members = config.advantage.name, config.rollout.members
    if "group" in rule.needs and members < 2:
        yield (
            f"rollout.members is {members}, but advantage.name '{name}' compares the members of a group: set "
            f"rollout.members to 2 or more, or advantage.name to {_named(lambda other: 'group' not in other.needs)}"
        )
    if "k" in rule.settings and config.advantage.k >= members:
        yield (
            f"advantage.k is {config.advantage.k}, but advantage.name '{name}' compares the choices of k out of "
            f"rollout.members = {members}: set advantage.k to {members - 1} or less, or rollout.members to "
            f"{config.advantage.k + 1} or more"
        )
    if "anchors" in rule.needs and started(make_env).anchor() is None:
        yield (
            f"env.name is '{config.env.get('name')}', but advantage.name '{name}' compares turns that began in the same "
            "state, which this environment does not tell: define anchor() in it, or set advantage.name to "
            f"{_named(lambda other: 'turn_coef' in other.settings and 'anchors' not in other.needs)}"
        )
    if config.loss.kl_in == "reward" and config.loss.kl_coef > 0 and KL_IN_REWARD not in rule.traits:
        yield (
            f"loss.kl_in is 'reward', but advantage.name '{name}' takes the task's rewards alone: set loss.kl_in to 'loss', "
            f"or advantage.name to {_named(lambda other: KL_IN_REWARD in other.traits)}"
        )


def _unused(config: Config, rule: AdvantageEstimator) -> Iterator[str]:
    used = used_settings(rule)
    for key, field in AdvantageConfig.model_fields.items():
        value = getattr(config.advantage, key)
        if key not in ("name", *used) and value != field.default:
            yield _useless(config, f"advantage.{key}", value, partial(_uses, key))
    for key in CRITIC_SETTINGS:
        value = getattr(config.optim, key)
        if "values" not in rule.needs and value != OptimConfig.model_fields[key].default:
            yield _useless(config, f"optim.{key}", value, lambda other: "values" in other.needs)


def _uses(key: str, rule: AdvantageEstimator) -> bool:
    return key in used_settings(rule)


def _useless(config: Config, key: str, value: object, uses: Callable[[AdvantageEstimator], bool]) -> str:
    return (
        f"{key} is {value}, but advantage.name '{config.advantage.name}' does not use it: leave it out, or set "
        f"advantage.name to {_named(uses)}"
    )


def _named(fits: Callable[[AdvantageEstimator], bool]) -> str:
    """The registered rules that fit, as words; `none` is no remedy, it goes with other losses only."""
    names: Iterable[str] = (name for name in advantages if name != "none" and fits(advantages.get(name)))
    return " or ".join(f"'{name}'" for name in names)
