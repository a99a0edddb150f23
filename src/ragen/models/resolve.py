"""From the name of a model to a local directory with Hugging Face files."""

from pathlib import Path

from ragen.errors import ModelError
from ragen.models import hub, smollm2, tiny
from ragen.models.names import SMOLLM2, TINY, local_model


def resolve_model(name: str) -> Path:
    """The local directory of ``'smollm2-135m'``, ``'tiny'``, a directory, or a Hugging Face hub name.

    What is not there yet is fetched or made once and kept in ``cache_dir()`` (hub models: in the hub's own cache).
    Raises ModelError that says what was tried and what to do.
    """
    if name == SMOLLM2:
        return smollm2.directory(lambda: hub.download(smollm2.HUB_NAME))
    if name == TINY:
        return tiny.directory()
    path = local_model(name)
    if path is not None:
        return path
    try:
        return hub.download(name)
    except ModelError as error:
        raise hub.nowhere(name, error) from None
