"""Every random draw has a name (law 8).

A seed is the stable hash of (run seed, split, purpose, index, member): it does not depend on ``PYTHONHASHSEED``, on
global generators, or on the order in which objects are built.
"""

import hashlib

import numpy as np

Split = str
SEED_BITS = 63


def derive(run_seed: int, split: Split, purpose: str, *indices: int) -> int:
    """Return a seed in [0, 2**63) for one named draw.

    ``purpose`` says what the draw is for ("instance", "dynamics", "sampling", …); ``indices`` are the instance index,
    then the member, then whatever is finer. Different names give independent seeds (BLAKE2b, 8 bytes).
    """
    name = "\x1f".join([str(run_seed), split, purpose, *map(str, indices)])
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - SEED_BITS)


def generator(seed: int) -> np.random.Generator:
    """A NumPy generator (Philox) for a derived seed."""
    return np.random.Generator(np.random.Philox(key=seed))
