"""Optional dependencies: how to install them into the Python that runs, from a clone or from the package index."""

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

PACKAGE = "ragen-rl"


def install_command(extra: str) -> str:
    """The command that adds an extra, for an editable install (a clone) with the clone's place and pinned versions."""
    return f"{sys.executable} -m pip install {_source(extra)}"


def _source(extra: str) -> str:
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        clone = unquote(urlsplit(origin["url"]).path)
        pinned = Path(clone) / "constraints.txt"
        return (f"-c '{pinned}' " if pinned.is_file() else "") + f"-e '{clone}[{extra}]'"
    return f"'{PACKAGE}[{extra}]'"
