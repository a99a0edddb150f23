"""How much memory a run needs, by arithmetic, against what there is."""

import math
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from safetensors import SafetensorError, safe_open

from ragen.errors import ModelError
from ragen.models.load import read_config, weight_files

BASE_BYTES = 600 * 2**20  # interpreter, torch and transformers themselves
CGROUP = Path("/sys/fs/cgroup")
CACHED = ("active_file", "inactive_file")  # of ``memory.stat``: counted as used, given back where memory is needed


@dataclass(frozen=True, slots=True)
class Activations:
    """What one forward and backward pass over ``tokens`` tokens keeps: hidden size, layers, vocabulary of the model."""

    tokens: int
    hidden: int
    layers: int
    vocabulary: int


def memory_estimate(
    parameters: int,
    dtype: torch.dtype,
    *,
    trainable: int,
    critic: int = 0,
    reference: bool = False,
    activations: Activations | None = None,
) -> int:
    """Bytes a run needs at its peak, roughly (± a third).

    With N parameters, N_t of them trainable and N_c in a separate critic, S = 4 bytes (master weights) and D the size of
    ``dtype``: weights S·N; gradients and two Adam moments 3·S·N_t; critic 4·S·N_c; a compute copy D·N where D < S
    (autocast's cast weights); the reference S·N. Activations a token: 16 hidden vectors a layer and 4 rows of logits
    of which a chunk of at most 256 tokens exists at a time, in S. Plus ``BASE_BYTES`` for the process.
    """
    master = 4
    size = torch.empty((), dtype=dtype).element_size()
    total = BASE_BYTES + master * parameters + 3 * master * trainable + 4 * master * critic
    total += size * parameters if size < master else 0
    total += master * parameters if reference else 0
    if activations is not None:
        a = activations
        total += master * a.tokens * a.layers * 16 * a.hidden
        total += master * 4 * min(a.tokens, 256) * a.vocabulary
    return total


def available_memory(device: torch.device, cgroup: Path = CGROUP) -> int:
    """Bytes free for a run on ``device``; on the CPU the smaller of the machine's and the container's (cgroup v2).

    Files that the system keeps in memory count as free in both.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = int(psutil.virtual_memory().available)
    try:
        limit, used, stat = ((cgroup / f"memory.{name}").read_text().strip() for name in ("max", "current", "stat"))
        parts = dict(line.split() for line in stat.splitlines())
        cached = sum(int(parts.get(name, 0)) for name in CACHED)
        return min(free, int(limit) - int(used) + cached) if limit != "max" else free
    except (OSError, ValueError):
        return free


def check_memory(needed: int, device: torch.device) -> None:
    """Raise ModelError, with what to change, where a run would not fit."""
    there = available_memory(device)
    if needed > there:
        raise ModelError(
            f"the run needs about {needed / 2**30:.1f} GiB on {device}, and {there / 2**30:.1f} GiB are free: use a "
            "smaller model.name, model.lora.rank 16 (instead of training all weights), loss.kl_coef 0 (no reference), "
            "optim.critic head, or a smaller optim.microbatch_tokens; or close other programs"
        )


@dataclass(frozen=True, slots=True)
class ModelSize:
    """What the files of a model say about its size, without loading it; 0 where the configuration does not tell."""

    parameters: int
    hidden: int
    layers: int
    vocabulary: int


def model_size(path: Path, *, trust_remote_code: bool = False) -> ModelSize:
    """Read the sizes from the configuration and the headers of the safetensors files; raises ModelError without weights."""
    count = 0
    for file in weight_files(path):
        try:
            with safe_open(file, framework="pt") as tensors:
                count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise ModelError(f"the weights in {file} cannot be read: {error}") from None
    try:
        config = read_config(path, trust_remote_code=trust_remote_code).get_text_config()
    except ModelError:  # an estimate must not stop what loading allows or explains better
        return ModelSize(count, 0, 0, 0)
    sizes = (getattr(config, name, None) or 0 for name in ("hidden_size", "num_hidden_layers", "vocab_size"))
    return ModelSize(count, *sizes)
