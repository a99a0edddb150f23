"""What can be known of a command before torch, which takes seconds to load: a wrong name must not wait for it."""

from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from ragen.errors import ConfigError

if TYPE_CHECKING:
    from ragen.config import Config


def check_environment(config: "Config") -> None:
    """Raise ConfigError for an environment that is not there, or not with these settings; the plugins are loaded first."""
    from ragen.envs import find_environment
    from ragen.modules import load_plugins

    load_plugins(config.plugins)
    find_environment(config.env)


def check_rollout(config: "Config", words: Sequence[str]) -> None:
    """Raise ConfigError for a setting among the ``words`` of a command that another one leaves without effect."""
    from ragen.config.conditions import ROLLOUT, without_effect
    from ragen.config.load import parse_overrides
    from ragen.config.settings import leaves

    given = {key for pair in parse_overrides(words) for key, _ in leaves(dict([pair]))}
    if problems := [told for key, told in without_effect(config, ROLLOUT) if key in given]:
        raise ConfigError("\n".join(problems))


def check_training(config: "Config") -> None:
    """Raise RagenError for a name among a run's settings that stands for nothing: environments, rules, trackers."""
    from ragen.envs import find_environment
    from ragen.rewards import process_rewards
    from ragen.runs.trackers import require_trackers

    check_environment(config)
    for name in config.eval.also:
        find_environment({"name": name})
    for stage in config.curriculum.stages:
        find_environment({**config.env, **stage.env})
    require_trackers(config.run.trackers)
    if config.reward.process != "none":
        process_rewards.get(config.reward.process)
    _check_rules(config)


def _check_rules(config: "Config") -> None:
    """The same for advantage rule and loss, which torch is needed to look up: only where nothing can have added one."""
    from ragen.config.contradictions import ADVANTAGES, LOSSES
    from ragen.registry import OWN_RULE, unknown_part

    for kind, group, name, known in (
        ("advantage", "ragen.advantages", config.advantage.name, ADVANTAGES),
        ("loss", "ragen.losses", config.loss.name, LOSSES),
    ):
        if name not in known and not config.plugins and not entry_points(group=group):
            raise ConfigError(unknown_part(kind, name, known, own=OWN_RULE))
