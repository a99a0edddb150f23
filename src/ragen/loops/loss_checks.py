"""Whether the chosen policy loss fits the other settings: refused before a model is loaded."""

import math
from collections.abc import Iterator

from ragen.algos.losses import losses
from ragen.algos.losses.base import PolicyLoss
from ragen.config.schema import Config
from ragen.errors import ConfigError

COMPARING = {"trajectory_pairs", "turn_pairs", "labels", "chosen"}


def needs_reference(config: Config) -> bool:
    """Whether a reference policy is loaded: for a KL term, or because the loss compares with it."""
    return config.loss.kl_coef > 0 or "reference_logprobs" in losses.get(config.loss.name).needs


def check_loss(config: Config) -> None:
    """Raise ConfigError for a policy loss that does not exist or contradicts other settings, with what to set."""
    problems = list(_problems(config, losses.get(config.loss.name)))
    if problems:
        raise ConfigError("\n".join(problems))


def _problems(config: Config, rule: PolicyLoss) -> Iterator[str]:
    loss, needs = config.loss, set(rule.needs)
    named = f"loss.name is '{loss.name}'"
    if "advantages" not in needs and config.advantage.name != "none":
        yield f"{named}, which takes no advantages, but advantage.name is '{config.advantage.name}': set it to 'none'"
    if "advantages" in needs and config.advantage.name == "none":
        yield f"{named}, which needs advantages, but advantage.name is 'none': set it to an estimator (docs/rules/)"
    if "advantages" not in needs and loss.kl_coef > 0 and loss.kl_in == "reward":
        yield f"{named}, which reads no per-token rewards: set loss.kl_in to 'loss', or loss.kl_coef to 0"
    relative = needs & COMPARING and not (needs & {"labels", "chosen"} and loss.return_threshold is not None)
    if relative and config.rollout.members < 2:
        remedy = ", or loss.return_threshold to a number" if needs & {"labels", "chosen"} else ""
        yield (
            f"{named}, which compares the members of a group, but rollout.members is {config.rollout.members}: set it to 2 "
            f"or more{remedy}"
        )
    if config.filter.strategy == "soft" and needs & {"trajectory_pairs", "turn_pairs", "labels"}:
        yield f"{named}, which has no token weights that filter.strategy 'soft' could scale: choose another strategy"
    if loss.tis_cap is not None and "advantages" not in needs:
        yield f"{named}, which has no importance weights: set loss.tis_cap to null"
    if loss.dual_clip is not None and "dual_clip" not in rule.settings:
        yield f"{named}, which has no dual clip: set loss.dual_clip to null, or loss.name to 'ppo_clip'"
    if loss.ratio_unit != "trajectory" and "units" not in needs:
        yield f"{named}, whose ratio is a token's: leave loss.ratio_unit at 'trajectory', or choose 'gspo' or 'gmpo'"
    yield from _mixture_problems(config, rule)


def _mixture_problems(config: Config, rule: PolicyLoss) -> Iterator[str]:
    loss = config.loss
    if loss.sft_coef_end > 0 and loss.sft_decay_steps == 0:
        yield f"loss.sft_coef_end is {loss.sft_coef_end}, but loss.sft_decay_steps is 0: set it to the steps it takes"
    if max(loss.sft_coef, loss.sft_coef_end) == 0:
        return
    if "advantages" not in rule.needs:
        yield f"loss.name is '{loss.name}', but demonstrations are mixed into RL: set loss.sft_coef and sft_coef_end to 0"
    steps = math.ceil(config.rollout.groups * config.rollout.members / config.optim.trajectories)
    if loss.sft_demonstrations < steps:
        yield (
            f"loss.sft_demonstrations is {loss.sft_demonstrations}, but a pass has up to {steps} optimiser steps and each "
            f"takes some: set it to {steps} or more, or raise optim.trajectories"
        )
