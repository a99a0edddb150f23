"""What the name of a model may be: told without loading torch."""

from pathlib import Path

from ragen.errors import ModelError, reason

SMOLLM2, TINY = "smollm2-135m", "tiny"
MADE = (SMOLLM2, TINY)  # names of models that are made here


def local_model(name: str) -> Path | None:
    """The directory of this name; None where it is one of ``MADE`` or may be a hub name, ``owner/model``.

    Raises ModelError for a name that can be nothing of these.
    """
    if name in MADE:
        return None
    try:
        path = Path(name).expanduser()
        if path.is_dir():
            return path
    except (OSError, RuntimeError, ValueError) as error:  # a user that is not there, or no name of a directory
        raise ModelError(f"model '{name}' is not a directory that can be read: {reason(error)}") from None
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise ModelError(
            f"model '{name}' is not a directory: give '{SMOLLM2}', '{TINY}', an existing directory with Hugging Face files, "
            "or a hub name like 'owner/model'"
        )
    return None
