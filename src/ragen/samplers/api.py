"""A message sampler over any OpenAI-compatible endpoint: bounded tries with back-off, and no key in any text it gives."""

import asyncio
import json
import random
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any, NoReturn

from ragen.errors import ConfigError
from ragen.extras import install_command
from ragen.samplers.chat import ChatReply, ChatRequest, ContextOverflow, EndpointFailure, Usage
from ragen.samplers.endpoint import DEFAULT_KEY, Endpoint, Redactor
from ragen.samplers.reply import NoReply, read_reply, read_usage

FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0  # seconds: the wait doubles from the one to the other
AGAIN = (408, 409, 425, 429)  # and every 5xx
HOPELESS = (401, 402, 403, 404, 405)  # no other request would fare better
SPENT = ("insufficient_quota", "billing_hard_limit_reached", "billing_not_active")
TOO_LONG = re.compile(
    r"context_length_exceeded|exceed_context_size|context (length|size|window)|prompt is too long|maximum number of tokens",
    re.IGNORECASE,
)
LONGEST_SEED = 2**31  # servers keep it in 32 bits, some of them with a sign


class _Again(Exception):
    """This try failed and another may not; ``wait``: the seconds the endpoint asked for."""

    def __init__(self, message: str, wait: float = 0.0) -> None:
        super().__init__(message)
        self.wait = wait


class ApiSampler:
    """Asks one model of an endpoint. Stop strings are not sent: the text is cut here, behind the string, as locally."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        try:
            import openai
        except ImportError:
            raise ConfigError(
                f"evaluating an API model needs the openai client, which is not installed: {install_command('api')}"
            ) from None
        key = endpoint.key()
        self._errors = openai
        self._endpoint, self._model, self._clean = endpoint, model, Redactor(key)
        self._has_key = key is not None
        self._limit_field = "max_tokens"
        self._jitter = random.Random()  # of time, not of results: it must differ between processes
        # tries are counted here, where one bound holds for all of them
        self._client = openai.AsyncOpenAI(
            base_url=endpoint.url, api_key=key or "none", max_retries=0, timeout=endpoint.timeout
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def reply(self, request: ChatRequest, usage: Usage) -> ChatReply:
        """One reply, after 1 + ``retries`` tries and ``patience`` seconds at most (see ``ChatSampler.reply``)."""
        until = time.monotonic() + self._endpoint.patience
        for attempt in range(self._endpoint.retries + 1):
            usage.requests += 1
            usage.retries += attempt > 0
            try:
                return await self._ask(request, usage, until - time.monotonic())
            except _Again as again:
                problem = again
            wait = max(problem.wait, self._back_off(attempt))
            if attempt == self._endpoint.retries or time.monotonic() + wait >= until:
                break
            await asyncio.sleep(wait)
        raise EndpointFailure(f"no reply after {attempt + 1} requests: {problem}")

    def _back_off(self, attempt: int) -> float:
        """Seconds before the next try: exponential, between half and all of it by chance so that callers spread."""
        return min(LONGEST_WAIT, FIRST_WAIT * 2.0**attempt) * self._jitter.uniform(0.5, 1.0)

    async def _ask(self, request: ChatRequest, usage: Usage, left: float) -> ChatReply:
        seconds = min(self._endpoint.timeout, left)
        limit_field = self._limit_field  # requests that are under way at the same time may change it
        try:
            async with asyncio.timeout(seconds):  # the client's own time-out begins anew with each byte
                text = await self._send(request, limit_field)
        except (TimeoutError, self._errors.APITimeoutError):
            raise _Again(f"no answer within {seconds:.0f} s") from None
        except self._errors.APIStatusError as error:
            self._refused(error, limit_field)
        except self._errors.APIConnectionError as error:
            raise _Again(f"no connection ({self._line(error.__cause__ or error)})") from None
        try:
            body = json.loads(self._clean(text))
        except (ValueError, RecursionError):
            usage += Usage(untold=1)
            raise _Again("the answer is not JSON, or was cut") from None
        usage += read_usage(body)
        try:
            return read_reply(body, thinking=request.thinking, stops=request.stop_strings)
        except NoReply as none:
            raise _Again(self._line(none)) from None

    async def _send(self, request: ChatRequest, limit_field: str) -> str:
        fields: dict[str, Any] = {
            "temperature": request.temperature,
            "seed": request.seed % LONGEST_SEED,
            limit_field: request.max_new_tokens,
            **self._endpoint.body,
        }
        messages: Any = [{"role": message.role, "content": _sendable(message.content)} for message in request.messages]
        answer = await self._client.chat.completions.with_raw_response.create(
            model=self._model,
            messages=messages,
            extra_body={name: value for name, value in fields.items() if value is not None},
        )
        return answer.text

    def _refused(self, error: Any, limit_field: str) -> NoReturn:
        """Raise what an HTTP status means; the words in it are the endpoint's own. ``limit_field`` was in the request."""
        status, code = error.status_code, str(error.code or "")
        said = f"HTTP {status}: {self._line(_words(error))}"
        if status in HOPELESS or code in SPENT:
            raise ConfigError(f"the endpoint refuses every request ({said}). {self._advice(status, code)}") from None
        if status in AGAIN or status >= 500:
            raise _Again(said, _asked_wait(error.response.headers)) from None
        if TOO_LONG.search(f"{code} {error.type or ''} {_words(error)}"):
            raise ContextOverflow(f"the endpoint says that the prompt is too long: {said}") from None
        if limit_field == "max_tokens" and "max_completion_tokens" in said:
            self._limit_field = "max_completion_tokens"  # the newer name of the same, which newer models insist on
            raise _Again(said) from None
        raise EndpointFailure(said) from None

    def _advice(self, status: int, code: str) -> str:
        if code in SPENT or status == 402:
            return "Its account has nothing left: fill it up and repeat the command to go on"
        if status in (404, 405):
            return f"Check the URL (it often ends in /v1) and the model's name '{self._model}'"
        name = self._endpoint.key_env or DEFAULT_KEY
        return f"Check the key in {name}" if self._has_key else f"Put the key into the environment variable {name}"

    def _line(self, text: object) -> str:
        """Foreign words on one line, bounded, without the key."""
        line = " ".join(self._clean(str(text)).split())
        return line if len(line) <= 300 else f"{line[:300]}…"


def _sendable(text: str) -> str:
    """A lone surrogate is no text: it becomes "?", as in the prompts of local models."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _words(error: Any) -> str:
    """The message of an error body, which is not always where it should be."""
    body = error.body
    if isinstance(body, dict):
        inner = body.get("message") or body.get("detail") or body.get("error")
        return str(inner or body)
    return str(body or error.response.text or "no reason given")


def _asked_wait(headers: Any) -> float:
    """Seconds that Retry-After (a number, or a date) asks to wait; 0 where it asks for nothing that can be read."""
    for name, scale in (("retry-after-ms", 1e-3), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) * scale)
        except ValueError:
            pass
        try:
            return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
        except (ValueError, OverflowError):
            pass
    return 0.0
