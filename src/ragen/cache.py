"""Where converted and made models are kept, and how a directory gets there whole or not at all."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ragen.errors import ModelError
from ragen.filelock import acquire, release

ADVICE = "Free some space there, or set the environment variable RAGEN_CACHE to a directory that can be written"


def cache_dir() -> Path:
    """``$RAGEN_CACHE``, else ``$XDG_CACHE_HOME/ragen``, else ``~/.cache/ragen`` (not created here)."""
    own, base = os.environ.get("RAGEN_CACHE"), os.environ.get("XDG_CACHE_HOME")
    try:
        if own:
            return Path(own).expanduser()
        return (Path(base).expanduser() if base else Path.home() / ".cache") / "ragen"
    except RuntimeError as error:  # no home directory
        raise ModelError(f"there is no place for the cache: {error}. {ADVICE}") from None


def is_made(target: Path) -> bool:
    """Whether the cache holds ``target``. Raises ModelError where it cannot be looked into."""
    with _clear_cache_errors(target):
        return target.is_dir()


def made_once(target: Path, make: Callable[[Path], None]) -> Path:
    """``target``, filled by ``make`` if it is not there yet. Raises ModelError where the cache cannot be written.

    ``make`` fills a directory beside it that is then renamed, so ``target`` is complete whenever it exists. Of processes
    that do this at the same time one makes it and the others wait; on a file system without locks each makes its own, the
    first rename wins, and the others use it.
    """
    if is_made(target):
        return target
    lock = target.with_name(f".{target.name}.lock")
    with _clear_cache_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = acquire(lock, wait=True)
    try:
        return target if is_made(target) else _make(target, make)
    finally:
        if handle is not None:
            release(lock, handle)


def _make(target: Path, make: Callable[[Path], None]) -> Path:
    with _clear_cache_errors(target):
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        with _clear_cache_errors(target):
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


@contextmanager
def _clear_cache_errors(target: Path) -> Iterator[None]:
    """Turn what the file system refuses (also as safetensors and tokenizers tell it) into a ModelError with a way out."""
    try:
        yield
    except Exception as error:
        from_disk = isinstance(error, OSError) and not isinstance(error, ConnectionError | TimeoutError)
        if not (from_disk or "os error" in str(error).lower()):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        place = getattr(error, "filename", None) or target
        raise ModelError(f"the cache cannot be used ({place}): {reason}. {ADVICE}") from error
