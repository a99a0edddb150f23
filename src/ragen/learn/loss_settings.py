"""What an update minimises."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ragen.algos.reduce import Aggregation
from ragen.learn.preferences import Preferences


@dataclass(frozen=True, slots=True)
class LossSettings:
    """loss = policy loss − entropy_coef · H + kl_coef · KL + value_coef · value loss.

    Policy loss, entropy and KL use the token weights of ``aggregation``; the value loss is a mean over tokens. ``name``
    is the policy loss, ``own`` its settings; ``ratio_unit`` what has one ratio in a sequence loss; ``tis_cap`` caps
    π_old / π_sampler, by which the policy loss's weights are then multiplied (None: not); ``preferences`` are for
    losses that compare trajectories. ``value_coef`` is for the value head; a separate critic has parameters and a
    learning rate of its own and takes 1.
    """

    name: str = "ppo_clip"
    own: Mapping[str, Any] = field(default_factory=lambda: {"clip_low": 0.2, "clip_high": 0.2})
    aggregation: Aggregation = "trajectory-mean"
    length_constant: float = 256.0
    ratio_unit: Literal["trajectory", "turn"] = "trajectory"
    tis_cap: float | None = None
    preferences: Preferences = field(default_factory=Preferences)
    entropy_coef: float = 0.0
    kl_coef: float = 0.0
    kl_estimator: Literal["k2", "k3"] = "k3"
    value_coef: float = 0.5
    value_clip: float | None = 0.2
