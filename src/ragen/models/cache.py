"""Where converted and made models are kept, and how a directory gets there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path


def cache_dir() -> Path:
    """``$RAGEN_CACHE``, else ``$XDG_CACHE_HOME/ragen``, else ``~/.cache/ragen`` (not created here)."""
    own = os.environ.get("RAGEN_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base).expanduser() if base else Path.home() / ".cache") / "ragen"


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """``target``, filled by ``make`` if it is not there yet.

    ``make`` fills a directory beside it that is then renamed, so ``target`` is complete whenever it exists. Processes that
    do this at the same time each make their own; the first rename wins and the others use it.
    """
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        filled = work / "filled"
        filled.mkdir()
        make(filled)
        try:
            filled.rename(target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return target
