"""Few different sizes of matrix products.

oneDNN compiles a kernel for every size it meets, about 0.4 MB each, so sizes that differ from step to step make memory creep
(12 MB a micro-batch were measured). Sizes that are rounded up come from a short list; what is added is computed and ignored.
"""

TOKENS = 32
COLUMNS = 32
QUERIES = 16
FILL = 8
ROWS = 4


def rounded(size: int, grain: int) -> int:
    """The smallest multiple of ``grain`` that is at least ``size``; sizes up to 1 stay as they are."""
    return size if size <= 1 else -(-size // grain) * grain
