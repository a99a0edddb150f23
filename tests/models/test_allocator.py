"""Freed memory goes back to the system where glibc manages it, and nothing happens elsewhere (case D9)."""

import os
import subprocess
import sys

import pytest

from ragen.models import allocator

CODE = """
import sys
import numpy as np, psutil, torch
from ragen.models.allocator import bound_memory, trim
bounded = sys.argv[1] == "on" and bound_memory()
torch.set_num_threads(1)
rng = np.random.default_rng(0)
pinned = []
for _ in range(60):  # long-lived small blocks between freed large ones: what fragments a heap
    blocks = [torch.ones(int(n)) for n in rng.integers(300_000, 6_000_000, size=6)]
    pinned.append(torch.ones(20_000))
    del blocks
if bounded:
    trim()
print(bounded, psutil.Process().memory_info().rss)
"""


def resident(setting: str) -> tuple[bool, int]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CODE, setting]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    applied, rss = done.stdout.split()
    return applied == "True", int(rss)


def test_d9_freed_blocks_do_not_stay_resident() -> None:
    applied, bounded = resident("on")
    if not applied:
        pytest.skip("not glibc on Linux")
    _, default = resident("off")
    assert bounded < default - 30_000_000


def test_elsewhere_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    allocator._glibc.cache_clear()
    assert allocator._glibc() is None
    allocator.trim()
    allocator._glibc.cache_clear()
