"""Keeping freed memory in the process, so that big tensors do not cost page faults each time they are made."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
SIZES = (1 << 30, 32 << 20)  # the wanted size, and the largest that older versions of glibc accept


@cache
def keep_freed_memory() -> bool:
    """Let glibc serve blocks up to 1 GiB from its heap and give back only what exceeds 1 GiB at its top.

    By default it maps every large block anew and returns it at once, and the kernel clears its pages again at the next
    step. Measured with 6 layers of SmolLM2 in bfloat16 (one thread, CPU time): forward 441 → 379 ms, forward and backward
    1,451 → 1,226 ms, page faults 710 → 156 thousand, peak memory 1.12 → 1.31 GB. Done once a process; returns whether it was
    done (glibc on Linux), and does nothing elsewhere.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  (other C libraries have no such function)
        return any(libc.mallopt(M_MMAP_THRESHOLD, size) for size in SIZES) and bool(libc.mallopt(M_TRIM_THRESHOLD, 1 << 30))
    except (OSError, AttributeError):
        return False
