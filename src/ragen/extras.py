"""Optional dependencies: how to install them into the Python that runs, from a clone or from the package index."""

import json
import sys
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit

PACKAGE = "ragen-rl"


def install_command(extra: str) -> str:
    """The command that adds an extra, for an editable install (a clone) with the clone's place."""
    return f"{sys.executable} -m pip install {_source(extra)}"


def _source(extra: str) -> str:
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        return f"-e '{unquote(urlsplit(origin['url']).path)}[{extra}]'"
    return f"'{PACKAGE}[{extra}]'"
