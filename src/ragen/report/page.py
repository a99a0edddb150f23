"""The page: template, style and scripts of ``assets/`` in one HTML text, with data that cannot end its element.

Nothing from a run stands in the HTML as it is: the head is JSON in ASCII without ``<``, ``>`` and ``&``, every other block
is base64 of gzipped JSON. A content security policy allows the page's own script and style by their hashes, and no network.
"""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ragen import __version__
from ragen.report.curves import COLOURS, GROUPS, described
from ragen.report.steps import ENDS

SCRIPTS = (
    "base.js",
    "data.js",
    "summary.js",
    "chart.js",
    "curves.js",
    "world.js",
    "shop.js",
    "tokens.js",
    "episode.js",
    "select.js",
    "rollouts.js",
    "keys.js",
    "app.js",
)  # in the order in which they stand in the page


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of data that the page opens when it needs it; ``name`` is made by us, never taken from a run."""

    name: str
    data: bytes


def packed(value: Any) -> bytes:
    """A value as gzipped JSON in ASCII (equal values give equal bytes)."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)


def head(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the page needs for its first picture: the runs' overviews, and how curves are drawn and named."""
    names = dict.fromkeys(name for run in runs for name in run["curves"])
    return {
        "version": __version__,
        "runs": list(runs),
        "metrics": described(names),
        "groups": GROUPS,
        "colours": COLOURS,
        "ends": [end.value for end in ENDS],
    }


def page(head: Mapping[str, Any] | None, blocks: Iterable[Block] = ()) -> Iterator[str]:
    """The text of the page, piece by piece; without a head it is the page that asks its server for the data."""
    script, style = "\n".join(_asset(name) for name in SCRIPTS), _asset("style.css")
    network = "connect-src 'self'" if head is None else "connect-src 'none'"
    parts = {
        "CSP": f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; {network}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "STYLE": style,
        "SCRIPT": script,
        "HEAD": _json_text(head),
    }
    shell = re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _asset("page.html"))
    above, _, below = shell.partition("<!-- blocks -->")
    yield above
    for block in blocks:
        text = base64.b64encode(block.data).decode("ascii")
        yield f'<script type="application/octet-stream;base64" id="{block.name}">{text}</script>\n'
    yield below


def _asset(name: str) -> str:
    return files("ragen.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


def _json_text(value: Any) -> str:
    """JSON that can stand in a script element: there it has no character that HTML or JavaScript reads in another way."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
