"""The allocator setting is harmless where it does not apply, saves page faults, and does not let memory grow."""

import os
import subprocess
import sys

import pytest

from ragen.models import malloc

CODE = """
import resource, sys
import numpy as np, psutil, torch
from ragen.models.malloc import keep_freed_memory
done = keep_freed_memory() if sys.argv[1] == "on" else False
torch.set_num_threads(1)
sizes = np.random.default_rng(0).integers(2_000_000, 6_000_000, size=300)
def step(i):
    kept = [torch.ones(int(n)) for n in sizes[i : i + 4]]
memory = []
for i in range(120):
    if i == 40:  # the heap has found its size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(i)
    memory.append(psutil.Process().memory_info().rss)
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(done, faults, max(memory[:40]), max(memory[80:]))
"""


def run(setting):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", CODE, setting]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
    applied, faults, early, late = done.stdout.split()
    return applied == "True", int(faults), int(early), int(late)


def test_d9_fewer_page_faults_and_no_growth():
    applied, faults, early, late = run("on")
    if not applied:
        pytest.skip("not glibc on Linux")
    _, plain_faults, _, _ = run("off")
    assert faults * 2 < plain_faults
    assert late < 1.1 * early


def test_elsewhere_it_does_nothing(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert malloc.keep_freed_memory.__wrapped__() is False
