"""Articles from a file, or made up."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ragen.envs.wiki.questions import Kind, clozes
from ragen.envs.wiki.synthetic import articles
from ragen.errors import ConfigError, reason
from ragen.tools.call import harmless
from ragen.tools.search import Document, SearchIndex

FORM = "JSON lines with 'title' and 'text' (or 'extract'), or one JSON object or list of such records"
TEXTS = ("text", "extract")


@lru_cache(maxsize=4)
def load_index(path: str) -> SearchIndex:
    """The search index of a file's articles, or of made-up ones where ``path`` is empty; ConfigError names what is wrong."""
    return SearchIndex(tuple(_documents(path)) if path else articles())


@lru_cache(maxsize=4)
def documents_by_title(path: str) -> dict[str, Document]:
    """The articles of ``load_index`` by title, and by case-folded title, the first of several (Aids, AIDS)."""
    documents = load_index(path).documents
    folded = {document.title.casefold(): document for document in reversed(documents)}
    return folded | {document.title: document for document in documents}


@lru_cache(maxsize=4)
def asked_documents(path: str, kinds: tuple[Kind, ...]) -> tuple[Document, ...]:
    """The articles of ``load_index`` that have a gap of these kinds."""
    return tuple(document for document in load_index(path).documents if clozes(document, kinds))


def _documents(path: str) -> Iterator[Document]:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8-sig")
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"env.file {path!r} cannot be read ({reason(error)}): give {FORM}, or leave env.file out for made-up articles"
        ) from None
    seen: set[str] = set()
    for where, record in _records(path, text):
        body = next((record[key] for key in TEXTS if isinstance(record, dict) and key in record), None)
        title = record.get("title") if isinstance(record, dict) else None
        if not isinstance(title, str) or not title.strip() or not isinstance(body, str):
            raise ConfigError(f"env.file {path!r}, {where}: it has no 'title' and 'text'; give {FORM}")
        title = " ".join(harmless(title).split())
        if title not in seen:
            seen.add(title)
            yield Document(title, " ".join(harmless(body).split()))
    if not seen:
        raise ConfigError(f"env.file {path!r} holds no article: give {FORM}")


def _records(path: str, text: str) -> Iterator[tuple[str, Any]]:
    """Each record with its place."""
    try:
        whole = json.loads(text)
    except RecursionError:
        raise ConfigError(f"env.file {path!r} is nested too deeply: give {FORM}") from None
    except ValueError:
        whole = None
    if isinstance(whole, dict) and not (set(TEXTS) & whole.keys() and isinstance(whole.get("title"), str)):
        whole = list(whole.values())  # by title
    if isinstance(whole, list):
        yield from ((f"record {number}", record) for number, record in enumerate(whole, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                yield f"line {number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(f"env.file {path!r}, line {number}: it is not JSON ({error}); give {FORM}") from None
