"""Which endpoint to ask, how patiently, and its key, which is read from the environment and written nowhere."""

import json
import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from ragen.errors import ConfigError

DEFAULT_KEY = "OPENAI_API_KEY"
SHORTEST_KEY = 8  # characters; what is shorter (EMPTY, none) stands for "no key" and may occur in any text
OWN_FIELDS = ("model", "messages", "stream", "n")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Args:
        url: its base, for example ``https://api.openai.com/v1`` or ``http://127.0.0.1:8000/v1``.
        key_env: the environment variable that holds the key; None: OPENAI_API_KEY where it is set.
        concurrency: requests at the same time at most.
        timeout: seconds a request may take.
        retries: how often a request is made again after 429, 5xx, a time-out, a lost connection or a broken answer.
        patience: seconds for one reply at most, all tries and waits included.
        body: further fields of a request (``{"reasoning_effort": "low"}``); None as a value leaves a field out.
        price_in, price_out: price of a million tokens sent and sampled; None: cost is not told.

    Raises ConfigError for what cannot be used. A URL must not hold a user, a password or a query: keys stand there.
    """

    url: str
    key_env: str | None = None
    concurrency: int = 8
    timeout: float = 120.0
    retries: int = 6
    patience: float = 600.0
    body: Mapping[str, Any] = field(default_factory=dict)
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", _checked_url(self.url))
        for name, least in (("concurrency", 1), ("retries", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"{name} is {value!r}: it must be a whole number of at least {least}")
        for name in ("timeout", "patience"):
            if not _is_amount(getattr(self, name)) or getattr(self, name) == 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}: it must be a number of seconds above 0")
        for name in ("price_in", "price_out"):
            if getattr(self, name) is not None and not _is_amount(getattr(self, name)):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: it must be the price of a million tokens, 0 or more")
        if (self.price_in is None) != (self.price_out is None):
            raise ConfigError("price_in and price_out belong together: give both, or none")
        _check_body(self.body)

    @property
    def host(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    def key(self) -> str | None:
        """The key, or None where none is set; ConfigError where a variable was named and holds none."""
        name = self.key_env or DEFAULT_KEY
        key = os.environ.get(name, "").strip()
        if not key and self.key_env is not None:
            raise ConfigError(f"the environment variable {name} is empty or not set: put the endpoint's key there")
        if not key.isascii() or not key.isprintable():
            raise ConfigError(f"the environment variable {name} holds characters that no key has: set it again")
        return key or None

    def cost(self, prompt_tokens: int, completion_tokens: int) -> float | None:
        """The price of these tokens, in the currency of the prices."""
        if self.price_in is None or self.price_out is None:
            return None
        return (self.price_in * prompt_tokens + self.price_out * completion_tokens) / 1e6


class Redactor:
    """Takes one key, and nothing else, out of texts that come from outside."""

    def __init__(self, key: str | None) -> None:
        found = {key, quote(key, safe="")} if key is not None and len(key) >= SHORTEST_KEY else set()
        self._pattern = re.compile("|".join(map(re.escape, sorted(found, key=len, reverse=True)))) if found else None

    def __call__(self, text: str) -> str:
        """The text with ``[key]`` in the key's place."""
        return text if self._pattern is None else self._pattern.sub("[key]", text)


def _checked_url(url: object) -> str:
    """The base URL without a final slash. Messages never repeat it: it may hold a key."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        hidden = parts is not None and bool("@" in parts.netloc or parts.query or parts.fragment)
        usable = parts is not None and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        hidden, usable = False, False
    if hidden:
        raise ConfigError(
            "the endpoint's URL holds a user, a password, a query or a fragment, which would end up in files: give the "
            f"plain URL, and the key in the environment ({DEFAULT_KEY}, or the variable that --key-env names)"
        )
    if not usable:
        raise ConfigError("the endpoint's URL cannot be used: give one such as https://api.openai.com/v1")
    return str(url).strip().rstrip("/").removesuffix("/chat/completions")


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


def _check_body(body: object) -> None:
    try:
        named = isinstance(body, Mapping) and all(isinstance(name, str) for name in body)
        json.dumps(dict(body) if isinstance(body, Mapping) else None, allow_nan=False)
    except (TypeError, ValueError):
        named = False
    if not named or not isinstance(body, Mapping):
        raise ConfigError('body must be a JSON object of fields to send with each request, such as {"top_p": 0.9}')
    for name in OWN_FIELDS:
        if name in body:
            raise ConfigError(f"body must not hold '{name}': the evaluation sets it")
