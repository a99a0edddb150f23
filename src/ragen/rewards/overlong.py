"""The soft overlong penalty."""


def overlong_penalty(length: int, *, limit: int, buffer: int) -> float:
    """Penalty of a reply of ``length`` tokens, in [−1, 0]: linear over the last ``buffer`` tokens before ``limit``.

        0                                     length ≤ limit − buffer
        ((limit − buffer) − length) / buffer  limit − buffer < length ≤ limit
        −1                                    limit < length

    ``buffer`` 0 means no penalty at all. Lengths are in sampled tokens, ``buffer`` ≤ ``limit``.
    Source: DAPO (arXiv 2503.14476, eq. 13), per reply here, where DAPO has one reply an episode.

    >>> [overlong_penalty(n, limit=10, buffer=4) for n in (6, 7, 10, 11)]
    [0.0, -0.25, -1.0, -1.0]
    """
    if not 0 <= buffer <= limit:
        raise ValueError(f"the overlong buffer must be between 0 and the limit {limit}, got {buffer}")
    excess = min(length - (limit - buffer), buffer)
    return -excess / buffer if excess > 0 else 0.0
