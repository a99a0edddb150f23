"""Keeping resident memory low without paying for it at every operation: freed memory goes back after each stage.

Rollout and update allocate blocks of 1 to 10 MB for every operation. Mapped one by one (glibc's way with large blocks) each
costs its page faults: an update of 898 tokens took 5.9 s, and 3.7 s with the blocks on the heap. A heap that is never
trimmed fragments, so the stages of a step end with a trim (docs/log.md, design/008).
"""

import ctypes
import os
import sys
from functools import cache
from typing import Any

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
TRIM_THRESHOLD = 1 << 28  # bytes that may be free at the heap's end before it shrinks by itself
MMAP_THRESHOLD = 1 << 25  # bytes: larger blocks are mapped one by one and returned when freed (glibc's upper limit)
ONEDNN_KERNELS = "256"  # compiled kernels oneDNN keeps (its default is 1,024; they add up when lengths vary)


@cache
def bound_memory() -> bool:
    """Fix the thresholds and bound oneDNN's cache, once a process, before the first product; True where glibc took it."""
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", ONEDNN_KERNELS)
    libc = _glibc()
    if libc is None:
        return False
    return bool(libc.mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD)) and bool(libc.mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD))


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
