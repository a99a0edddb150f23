"""Models of the Hugging Face hub: from its cache, or fetched; torch is not loaded."""

import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ragen.errors import ModelError
from ragen.models.names import MADE, local_model

log = logging.getLogger("ragen")
HUB_TIMEOUT = 3.0  # seconds for the first sign of life; a machine without network must not wait longer
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")


def require_model(name: str) -> None:
    """Raise ModelError for a name that is no model here and none on the hub; of one there only its config is fetched."""
    if name in MADE or local_model(name) is not None:
        return
    try:
        if _cached(name) is None:
            _fetched(name, ["config.json"])
    except ModelError as error:
        raise nowhere(name, error) from None


def nowhere(name: str, error: ModelError) -> ModelError:
    """What is said of a name that is no directory, where the hub's answer was ``error``."""
    return ModelError(f"model '{name}' is not a directory here, and {error}")


def download(name: str) -> Path:
    """The hub model's local snapshot: from the hub's cache, else downloaded. Raises ModelError with the reason."""
    return _cached(name) or _fetched(name, HUB_FILES)


def _cached(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        found = Path(snapshot_download(name, allow_patterns=list(HUB_FILES), local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None
    return found if any(found.glob("*.safetensors")) else None  # a snapshot that was interrupted may lack them


def _fetched(name: str, files: Sequence[str]) -> Path:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise ModelError("the Hugging Face hub was not asked, because HF_HUB_OFFLINE is set and its cache has none")
    if not hub_answers(constants.ENDPOINT):
        raise ModelError(f"the Hugging Face hub ({constants.ENDPOINT}) does not answer within {HUB_TIMEOUT:.0f} seconds")
    if files is HUB_FILES:
        log.info("downloading %s from the Hugging Face hub", name)
    try:
        return Path(snapshot_download(name, allow_patterns=list(files), etag_timeout=HUB_TIMEOUT))
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
