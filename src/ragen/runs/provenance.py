"""Where a run comes from: versions, machine, threads, seeds, commit. Never environment variables, arguments or keys."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from ragen.config.schema import Config

_PACKAGES = ("ragen-rl", "torch", "transformers", "tokenizers", "safetensors", "numpy", "pydantic", "peft", "gymnasium")


def provenance(config: Config) -> dict[str, Any]:
    """The facts needed to repeat a run, as plain values; the caller adds device, dtype, threads and model."""
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "cpu": _cpu(),
        "logical_cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "seeds": {"run": config.seed, "eval": config.eval.seed},
        "git": _git(),
    }


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _git() -> dict[str, Any] | None:
    """Commit of the checkout RAGEN runs from; None for an installed package or without git."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists() or not (root / "pyproject.toml").is_file():
        return None
    try:
        commit = _run_git(root, "rev-parse", "HEAD")
        return {"commit": commit, "changed_files": bool(_run_git(root, "status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _run_git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
