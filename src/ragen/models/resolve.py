"""From the name of a model to a local directory with Hugging Face files."""

import logging
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from ragen.errors import ModelError
from ragen.models import smollm2, tiny
from ragen.models.names import SMOLLM2, TINY, local_model

log = logging.getLogger("ragen")
HUB_TIMEOUT = 3.0  # seconds for the first sign of life; a machine without network must not wait longer
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]


def resolve_model(name: str) -> Path:
    """The local directory of ``'smollm2-135m'``, ``'tiny'``, a directory, or a Hugging Face hub name.

    What is not there yet is fetched or made once and kept in ``cache_dir()`` (hub models: in the hub's own cache).
    Raises ModelError that says what was tried and what to do.
    """
    if name == SMOLLM2:
        return smollm2.directory(lambda: download(smollm2.HUB_NAME))
    if name == TINY:
        return tiny.directory()
    path = local_model(name)
    if path is not None:
        return path
    try:
        return download(name)
    except ModelError as error:
        raise ModelError(f"model '{name}' is not a directory here, and {error}") from None


def download(name: str) -> Path:
    """The hub model's local snapshot: from the hub's cache, else downloaded. Raises ModelError with the reason."""
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
        if any(found.glob("*.safetensors")):  # a snapshot that was interrupted may lack them
            return found
    except (LocalEntryNotFoundError, HFValidationError):
        pass
    if constants.HF_HUB_OFFLINE:
        raise ModelError("the Hugging Face hub was not asked, because HF_HUB_OFFLINE is set and its cache has no such model")
    if not hub_answers(constants.ENDPOINT):
        raise ModelError(f"the Hugging Face hub ({constants.ENDPOINT}) does not answer within {HUB_TIMEOUT:.0f} seconds")
    log.info("downloading %s from the Hugging Face hub", name)
    try:
        return Path(snapshot_download(name, allow_patterns=HUB_FILES, etag_timeout=HUB_TIMEOUT))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError, ValueError) as error:
        why = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"the Hugging Face hub could not give it: {why}") from None


def hub_answers(endpoint: str) -> bool:
    """Whether a connection to the hub (or to the proxy on the way to it) opens in time."""
    url = urlsplit(endpoint)
    proxy = os.environ.get(f"{url.scheme}_proxy") or os.environ.get(f"{url.scheme.upper()}_PROXY")
    if proxy:
        url = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    try:
        port = url.port or (443 if url.scheme == "https" else 80)
        with socket.create_connection((url.hostname or "", port), timeout=HUB_TIMEOUT):
            return True
    except (OSError, ValueError):
        return False
