"""What is left of work that Ctrl-C ended: ``main`` says it behind "interrupted"."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_kept(advice: str) -> Iterator[None]:
    """Around work of which nothing is stored before its end; ``advice`` is what may be done about that."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"nothing of it is kept, and the same command begins anew; {advice}") from None
