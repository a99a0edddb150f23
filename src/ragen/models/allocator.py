"""Keeping resident memory low: what training frees goes back to the system.

Rollout and update allocate blocks whose sizes differ from step to step. glibc raises its own threshold for mapping blocks
when such blocks are freed, so most of them come to lie in its heaps, which fragment: with SmolLM2-135M resident memory grew
by 0.1–0.8 GB a step. With a fixed threshold and a trim after each stage it grows by 0.01–0.06 GB a step, ever less, and not
at all for a float32 model (docs/log.md).
"""

import ctypes
import os
import sys
from functools import cache
from typing import Any

M_MMAP_THRESHOLD = -3  # malloc.h
THRESHOLD = 1 << 20  # bytes: larger blocks are mapped one by one and returned when freed
ONEDNN_KERNELS = "256"  # compiled kernels oneDNN keeps (its default is 1,024; they add up when lengths vary)


@cache
def bound_memory() -> bool:
    """Fix the threshold and bound oneDNN's cache, once a process, before the first product; True where glibc took it."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", ONEDNN_KERNELS)
    libc = _glibc()
    return libc is not None and bool(libc.mallopt(M_MMAP_THRESHOLD, THRESHOLD))


def trim() -> None:
    """Give freed pages of the heaps back to the system (≈ 0.1 s for a few GB); nothing where there is no glibc."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> Any:
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
