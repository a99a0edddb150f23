"""Which device and which compute type to use, decided by what the machine can do."""

import time
from functools import cache
from pathlib import Path

import torch

from ragen.errors import ConfigError

SMALL_MODEL = 20_000_000  # parameters; below, casting costs more than a reduced type saves
PROBE_SIZE = 512
PROBE_GAIN = 1.5


def choose_device(name: str) -> torch.device:
    """The device of ``'auto'`` (cuda, else mps, else cpu) or of an explicit name. Raises ConfigError if it is not there."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError(
            f"setting 'model.device' is '{name}': known are 'auto', 'cpu', 'cuda', 'cuda:<number>', 'mps'"
        ) from None
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    if device.type not in counts or (device.index or 0) >= counts[device.type]:
        there = [kind for kind, count in counts.items() if count]
        raise ConfigError(
            f"setting 'model.device' is '{name}', but this machine offers {', '.join(there)}: use one, or 'auto'"
        )
    return device


def choose_dtype(name: str, device: torch.device, parameters: int | None = None) -> torch.dtype:
    """The compute type (autocast) of ``'float32'``, ``'bfloat16'`` or ``'auto'``; weights stay float32 in any case.

    ``'auto'`` is bfloat16 where the device multiplies it faster, and float32 elsewhere and for models of fewer than 20
    million ``parameters``. Raises ConfigError for another name.
    """
    if name in ("float32", "bfloat16"):
        return torch.float32 if name == "float32" else torch.bfloat16
    if name != "auto":
        raise ConfigError(f"setting 'model.dtype' is '{name}': known are 'auto', 'float32', 'bfloat16'")
    if parameters is not None and parameters < SMALL_MODEL:
        return torch.float32
    return torch.bfloat16 if bfloat16_pays(device.type) else torch.float32


@cache
def bfloat16_pays(kind: str) -> bool:
    """Whether bfloat16 products are faster than float32 ones: by the processor's flags, else by a short probe."""
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if kind != "cpu":
        return False
    return "avx512_bf16" in cpu_flags() or "amx_bf16" in cpu_flags() or _probe()


def cpu_flags() -> frozenset[str]:
    """The processor's capability flags (Linux on x86; empty elsewhere)."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), []))


def _probe() -> bool:
    """Best of a few products of each type: bfloat16 must be clearly faster."""
    best = {}
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.ones(PROBE_SIZE, PROBE_SIZE, dtype=dtype)
        times: list[float] = []
        end = time.perf_counter() + 0.25
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            torch.mm(x, x)
            times.append(time.perf_counter() - start)
        best[dtype] = min(times)
    return best[torch.bfloat16] * PROBE_GAIN < best[torch.float32]
