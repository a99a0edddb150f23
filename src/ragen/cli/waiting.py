"""What is going on while there is nothing to show yet, such as the seconds in which torch is loaded."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

LOADING = "loading torch"


@contextmanager
def doing(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show ``what`` on the error stream while it is done, where that is a terminal; the line goes when it is over."""
    shown = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if shown:
        sys.stderr.write(f"{what} …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
