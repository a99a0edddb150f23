"""Writing files so that a crash or a full disk never leaves half of one under its final name; clear errors for the rest."""

import errno
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ragen.errors import CheckpointError

_FULL = (errno.ENOSPC, errno.EDQUOT)
ESCAPE = (
    "backslashreplace"  # a lone surrogate, which UTF-8 cannot hold, becomes \udXXX: JSON's own escape, read back as it was
)


@contextmanager
def clear_disk_errors(what: str, path: Path, advice: str = "") -> Iterator[None]:
    """Turn what the system refuses (also as reported by libraries in other words) into a CheckpointError with advice."""
    try:
        yield
    except Exception as error:
        reason = refusal(error)
        if reason is None:
            raise
        advice = f" {advice}" if advice else ""
        why, remedy = ("the disk is full", "Free some space") if is_full(error) else (reason, "Make the place writable")
        raise CheckpointError(
            f"{what} could not be written to {str(path)!r}: {why}. {remedy}, or choose another place.{advice}"
        ) from error


def refusal(error: BaseException) -> str | None:
    """Why the system refused to read or write, or None for an error of another kind; safetensors tells it as text only."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, ValueError) and "null byte" in str(error):
        return "the path holds a NUL character"
    number = re.search(r"os error (\d+)", str(error))
    if number is None and is_full(error):
        return os.strerror(errno.ENOSPC)
    return None if number is None else os.strerror(int(number[1]))


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk or the quota is full."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    text = str(error).lower()
    return any(f"os error {code})" in text for code in _FULL) or "no space left on device" in text


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all (temporary file, fsync, rename)."""
    temporary = path.with_name(f".{path.name}.tmp")
    with clear_disk_errors(path.name, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8", errors=ESCAPE) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to, which takes the place of ``path`` once all is written; after an error it is gone."""
    temporary = path.with_name(f".{path.name}.tmp")
    with clear_disk_errors(path.name, path):
        try:
            yield temporary
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def clean_temporary(folder: Path) -> None:
    """Remove what a kill inside ``write_text`` left below ``folder``."""
    for path in list(folder.rglob(".*.tmp")):
        path.unlink(missing_ok=True)


def read_json(path: Path, advice: str) -> Any:
    """The content of a JSON file; a damaged one is a CheckpointError that ends in ``advice``."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"'{path}' cannot be read ({refusal(error) or error}): {advice}") from None


def sync_folder(path: Path) -> None:
    """Make renames inside a directory durable; a file system that cannot is left as it is."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
