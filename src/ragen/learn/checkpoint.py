"""Everything a learner is, on disk: a plain Hugging Face directory plus safetensors and JSON, no pickle anywhere.

Files beside the model's own: ``state.json`` (counters, kinds, the caller's ``extra``), ``optimizer.safetensors`` (Adam's
moments by parameter name), ``critic.safetensors`` (value head and separate critic), ``adapter.safetensors`` (LoRA; the model
files then hold the merged weights). The caller commits the directory as a whole.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ragen.errors import CheckpointError
from ragen.learn.lora import adapters, fingerprint, merged_state
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.models.load import quiet_transformers, save_model

FORMAT = 1
STATE, OPTIMIZER, CRITIC, ADAPTER = "state.json", "optimizer.safetensors", "critic.safetensors", "adapter.safetensors"
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz")
COUNTERS = ("steps", "actor_steps", "skipped", "skipped_in_a_row")
MOMENTS = ("exp_avg", "exp_avg_sq", "step")

JSON = Any


def save_state(directory: Path, policy: Policy, optimizer: Optimizer, tokenizer: Any, extra: Mapping[str, JSON]) -> None:
    """Write policy, critic, optimiser and ``extra`` (plain JSON values) into an existing directory.

    ``AutoModelForCausalLM.from_pretrained(directory)`` loads the policy (LoRA: merged) and ``AutoTokenizer`` the tokenizer.
    """
    model = policy.model
    save_model(model, tokenizer, directory, state=merged_state(model))
    _save(directory / OPTIMIZER, _moments(optimizer))
    _save(directory / CRITIC, dict(policy.critic_parameters()))
    if policy.lora is not None:
        _save(directory / ADAPTER, dict(adapters(model)))
    state = _identity(policy) | {"optimizer": {name: getattr(optimizer, name) for name in COUNTERS}, "extra": dict(extra)}
    (directory / STATE).write_text(json.dumps(state, indent=1, sort_keys=True, allow_nan=False), encoding="utf-8")


def stored_extra(directory: Path) -> dict[str, JSON]:
    """The ``extra`` of a saved state alone; CheckpointError as for ``load_state``."""
    extra: dict[str, JSON] = _read_state(directory).get("extra", {})
    return extra


def load_state(directory: Path, policy: Policy, optimizer: Optimizer) -> None:
    """Put a saved state back, bit for bit, into a policy and optimiser built with the same settings.

    Raises:
        CheckpointError: the directory is not one of ours, holds pickled files, belongs to another kind of policy or other
            base weights, or lacks anything: the message names the piece. Nothing has been changed then but, at worst, values
            that a complete load would have overwritten.
    """
    state = _read_state(directory)
    for key, value in _identity(policy).items():
        if state.get(key) != value:
            raise CheckpointError(
                f"checkpoint {directory} has {key} {state.get(key)!r}, this run has {value!r}: use the run's own settings"
            )
    if policy.lora is not None:
        _fill(dict(adapters(policy.model)), _load(directory / ADAPTER), directory / ADAPTER)
    else:
        _load_model(directory, policy.model)
    _fill(dict(policy.critic_parameters()), _load(directory / CRITIC), directory / CRITIC)
    _restore_moments(optimizer, _load(directory / OPTIMIZER), directory / OPTIMIZER)
    for name in COUNTERS:
        if not isinstance(state.get("optimizer", {}).get(name), int):
            raise CheckpointError(f"{directory / STATE} lacks the optimiser's counter '{name}': use a complete checkpoint")
        setattr(optimizer, name, state["optimizer"][name])


def _identity(policy: Policy) -> dict[str, JSON]:
    """What must agree between a checkpoint and the policy it is loaded into."""
    lora = policy.lora
    return {
        "format": FORMAT,
        "architecture": type(policy.model).__name__,
        "critic": policy.kind,
        "critic_architecture": None if policy.critic is None else type(policy.critic.model).__name__,
        "lora": None if lora is None else {"rank": lora.rank, "alpha": lora.alpha, "targets": lora.targets},
        "base_weights": None if lora is None else fingerprint(policy.model),
    }


def _read_state(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        raise CheckpointError(f"no checkpoint at {directory}: the directory does not exist")
    pickled = sorted(path.name for path in directory.iterdir() if path.suffix.lower() in PICKLED)
    if pickled:
        raise CheckpointError(
            f"checkpoint {directory} holds {pickled[0]}, a file that may run code when read; ragen writes safetensors and "
            "JSON only: this is not its checkpoint, or it was tampered with"
        )
    path = directory / STATE
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{directory} is not a ragen checkpoint: it has no {STATE}") from None
    except (ValueError, OSError) as error:
        raise CheckpointError(f"cannot read {path}: {error}; use an earlier checkpoint") from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} does not hold a state: use an earlier checkpoint")
    return state


def _load_model(directory: Path, model: Any) -> None:
    try:
        with quiet_transformers():
            loaded, report = type(model).from_pretrained(
                directory, dtype=torch.float32, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise CheckpointError(f"cannot load the model in {directory}: {error}; use an earlier checkpoint") from error
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report[problem]:
            raise CheckpointError(
                f"the model in {directory} has {problem.replace('_', ' ')}: {min(map(str, report[problem]))}"
            )
    source = dict(loaded.named_parameters()) | dict(loaded.named_buffers())
    _fill(dict(model.named_parameters()) | dict(model.named_buffers()), source, directory / "model.safetensors")


def _moments(optimizer: Optimizer) -> dict[str, Tensor]:
    state = optimizer.adam.state
    return {f"{name}.{key}": state[p][key] for name, p in optimizer.parameters.items() if p in state for key in MOMENTS}


def _restore_moments(optimizer: Optimizer, saved: dict[str, Tensor], path: Path) -> None:
    known = {f"{name}.{key}" for name in optimizer.parameters for key in MOMENTS}
    foreign = sorted(set(saved) - known)
    if foreign:
        raise CheckpointError(f"{path} has moments of an unknown parameter, {foreign[0]}: it belongs to another run")
    optimizer.adam.state.clear()
    for name, parameter in optimizer.parameters.items():
        found = [key for key in MOMENTS if f"{name}.{key}" in saved]
        if not found:
            continue
        if len(found) < len(MOMENTS):
            lost = next(key for key in MOMENTS if key not in found)
            raise CheckpointError(f"{path} lacks {name}.{lost}: use a complete checkpoint")
        moments = {key: saved[f"{name}.{key}"] for key in MOMENTS}
        if moments["exp_avg"].shape != parameter.shape or moments["exp_avg_sq"].shape != parameter.shape:
            raise CheckpointError(
                f"{path}: the moments of {name} have shape {tuple(moments['exp_avg'].shape)}, not {tuple(parameter.shape)}"
            )
        optimizer.adam.state[parameter] = {key: value.to(parameter.device) for key, value in moments.items()}


def _fill(targets: Mapping[str, Tensor], saved: Mapping[str, Tensor], path: Path) -> None:
    """Copy saved tensors into place; names and shapes must agree exactly."""
    for name in sorted(set(targets) ^ set(saved)):
        raise CheckpointError(
            f"{path} {'lacks' if name in targets else 'has the unknown'} {name}: use a complete checkpoint of this run"
        )
    for name, target in targets.items():
        if target.shape != saved[name].shape:
            raise CheckpointError(
                f"{path}: {name} has shape {tuple(saved[name].shape)}, this run needs {tuple(target.shape)}"
            )
        with torch.no_grad():
            target.copy_(saved[name])


def _save(path: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: value.detach().cpu().contiguous() for name, value in tensors.items()}, path, metadata={"format": "pt"})


def _load(path: Path) -> dict[str, Tensor]:
    try:
        loaded: dict[str, Tensor] = load_file(path)
    except FileNotFoundError:
        raise CheckpointError(f"checkpoint lacks {path}: use a complete checkpoint") from None
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"cannot read {path}: {error}; it is cut short or not a safetensors file, use an earlier checkpoint"
        ) from error
    return loaded
