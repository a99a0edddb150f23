"""RAGEN: train and study language-model agents by multi-turn reinforcement learning (StarPO, StarPO-S).

``train``, ``evaluate``, ``evaluate_api`` and ``compare`` do what the subcommands of the same names do. ``Environment`` is
the base class of environments, with ``EnvSettings``, ``Observation`` and ``Step``; ``Endpoint`` is an API model's address.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragen.api import evaluate, evaluate_api, train
    from ragen.comparing import compare
    from ragen.envs import Environment, EnvSettings, Observation, Step
    from ragen.samplers.endpoint import Endpoint

__version__ = "0.1.0"
__all__ = ["Endpoint", "EnvSettings", "Environment", "Observation", "Step", "compare", "evaluate", "evaluate_api", "train"]

_HOMES = dict.fromkeys(("Environment", "EnvSettings", "Observation", "Step"), "ragen.envs")
_HOMES |= dict.fromkeys(("evaluate", "evaluate_api", "train"), "ragen.api")
_HOMES["compare"] = "ragen.comparing"
_HOMES["Endpoint"] = "ragen.samplers.endpoint"


def __getattr__(name: str) -> Any:
    """Import on first use: the environments alone load no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'ragen' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
