"""Low-rank adapters through peft (extra ``lora``): injected into the model, which stays a plain Hugging Face module."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ragen.errors import ConfigError, ModelError
from ragen.extras import install_command

BASE = "base_layer."
MARK = "lora_"


@dataclass(frozen=True, slots=True)
class Lora:
    """``rank`` r and scale ``alpha`` of the adapters; ``targets``: 'all-linear' or module names separated by commas;
    ``seed`` fixes their initial values.
    """

    rank: int
    alpha: int = 64
    targets: str = "all-linear"
    seed: int = 0


def require_peft() -> None:
    """Raise ModelError, with the command that installs it, where peft is missing."""
    if find_spec("peft") is None:
        raise ModelError(f"LoRA (model.lora.rank > 0) needs peft: {install_command('lora')}, or set model.lora.rank to 0")


def inject(model: Any, lora: Lora) -> None:
    """Put adapters into ``model`` in place and freeze everything else; the output is unchanged at first (B = 0).

    Raises:
        ModelError: peft is not installed.
        ConfigError: the targets name no layer of this model.
    """
    require_peft()
    from peft import LoraConfig, inject_adapter_in_model

    targets = lora.targets if lora.targets == "all-linear" else [name.strip() for name in lora.targets.split(",")]
    config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM")
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(lora.seed)
            inject_adapter_in_model(config, model)
    except ValueError as error:
        raise ConfigError(f"model.lora.targets is '{lora.targets}': {error}") from error


def adapters(model: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The adapters' weights by name; empty for a model without adapters."""
    return {name: value for name, value in model.named_parameters() if MARK in name}


def merged_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """The state dict of the plain model with the adapters added to their layers; the model itself is not touched."""
    deltas = {
        f"{name}.{BASE}weight": layer.get_delta_weight("default")
        for name, layer in model.named_modules()
        if hasattr(layer, "get_delta_weight") and hasattr(layer, "base_layer")
    }
    state = {}
    for name, value in model.state_dict().items():
        if MARK not in name:
            state[name.replace(BASE, "")] = value + deltas[name] if name in deltas else value
    return state


def fingerprint(model: torch.nn.Module) -> str:
    """Tells frozen base weights apart: a hash over names, shapes and float64 sums of values and squares."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in model.named_parameters():
        if MARK not in name:
            exact = value.detach().double()
            digest.update(f"{name}{tuple(value.shape)}{exact.sum().item()!r}{exact.square().sum().item()!r}".encode())
    return digest.hexdigest()


@contextmanager
def swapped(model: torch.nn.Module, values: dict[str, Tensor]) -> Iterator[None]:
    """Run with other adapter weights, then put the present ones back, bit for bit."""
    present = {name: parameter.data for name, parameter in adapters(model).items()}
    try:
        for name, parameter in adapters(model).items():
            parameter.data = values[name]
        yield
    finally:
        for name, parameter in adapters(model).items():
            parameter.data = present[name]
