"""Whether the chosen policy loss fits the other settings: refused before a model is loaded."""

import math
from collections.abc import Callable, Iterator, Mapping

from ragen.algos.losses import losses
from ragen.algos.losses.base import PolicyLoss
from ragen.config.schema import Config, LossConfig
from ragen.loops.requirements import other_defaults
from ragen.wording import counted

PAIRED, JUDGED = {"trajectory_pairs", "turn_pairs"}, {"labels", "chosen"}


def _has_setting(key: str) -> Callable[[PolicyLoss], bool]:
    return lambda rule: key in rule.settings


def _needs(*names: str) -> Callable[[PolicyLoss], bool]:
    return lambda rule: bool(set(names) & set(rule.needs))


# a changed setting that the loss does not use is refused; not the clip bounds, which the methods' presets set
USED_BY: Mapping[str, Callable[[PolicyLoss], bool]] = {
    **{key: _has_setting(key) for key in ("dual_clip", "beta", "good_weight", "bad_weight")},
    "ratio_unit": _needs("units"),
    "tis_cap": _needs("advantages"),
    "pairing": _needs(*PAIRED),
    "pair_margin": _needs(*PAIRED),
    "return_threshold": _needs(*JUDGED),
}


def needs_reference(config: Config) -> bool:
    """Whether a reference policy is loaded: for a KL term, or because the loss compares with it."""
    return config.loss.kl_coef > 0 or "reference_logprobs" in losses.get(config.loss.name).needs


def loss_problems(config: Config) -> Iterator[str]:
    """Where the policy loss contradicts other settings, with what to set. Raises ConfigError for one that does not exist."""
    rule = losses.get(config.loss.name)
    loss, needs = config.loss, set(rule.needs)
    named = f"loss.name is '{loss.name}'"
    if "advantages" not in needs and config.advantage.name != "none":
        yield f"{named}, which takes no advantages, but advantage.name is '{config.advantage.name}': set it to 'none'"
    if "advantages" in needs and config.advantage.name == "none":
        yield f"{named}, which needs advantages, but advantage.name is 'none': set it to an estimator (docs/rules/)"
    if "advantages" not in needs and loss.kl_coef > 0 and loss.kl_in == "reward":
        yield f"{named}, which reads no per-token rewards: set loss.kl_in to 'loss', or loss.kl_coef to 0"
    relative = needs & PAIRED or (needs & JUDGED and loss.return_threshold is None)
    if relative and config.rollout.members < 2:
        remedy = ", or loss.return_threshold to a number" if needs & JUDGED else ""
        yield (
            f"{named}, which compares the members of a group, but rollout.members is {config.rollout.members}: set it to 2 "
            f"or more{remedy}"
        )
    if config.filter.strategy == "soft" and needs & (PAIRED | {"labels"}):
        yield f"{named}, which has no token weights that filter.strategy 'soft' could scale: choose another strategy"
    for key, uses in USED_BY.items():
        value = getattr(loss, key)
        if value != LossConfig.model_fields[key].default and not uses(rule):
            others = " or ".join(f"'{other}'" for other in losses if uses(losses.get(other)))
            yield f"loss.{key} is {value}, but {named}, which does not use it: leave it out, or set loss.name to {others}"
    if config.replay.size and "advantages" in needs and "old_logprobs" not in needs:
        ratios = " or ".join(f"'{other}'" for other in losses if "old_logprobs" in losses.get(other).needs)
        yield f"replay.size is {config.replay.size}, but {named}, which has no ratio to an older policy: use {ratios}"
    yield from _mixture_problems(config, rule)
    yield from other_defaults("loss", loss, rule)


def _mixture_problems(config: Config, rule: PolicyLoss) -> Iterator[str]:
    loss = config.loss
    if loss.sft_coef_end > 0 and loss.sft_decay_steps == 0:
        yield f"loss.sft_coef_end is {loss.sft_coef_end}, but loss.sft_decay_steps is 0: set it to the steps it takes"
    if max(loss.sft_coef, loss.sft_coef_end) == 0:
        return
    if "advantages" not in rule.needs:
        yield f"loss.name is '{loss.name}', but demonstrations are mixed into RL: set loss.sft_coef and sft_coef_end to 0"
    groups = config.rollout.groups
    replayed = min(config.replay.size, math.ceil(config.replay.ratio * groups))
    steps = math.ceil((groups + replayed) * config.rollout.members / config.optim.trajectories)
    if loss.sft_demonstrations < steps:
        yield (
            f"loss.sft_demonstrations is {loss.sft_demonstrations}, but a pass has up to "
            f"{counted(steps, 'optimiser step')} and each takes some: set it to {steps} or more, or raise optim.trajectories"
        )
