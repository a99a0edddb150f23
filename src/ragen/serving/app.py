"""The HTTP side: POST /v1/chat/completions, GET /v1/models, GET /health."""

import asyncio
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ragen.episode import Completion
from ragen.samplers.draw import decode
from ragen.seeding import derive
from ragen.serving.conversation import Conversations
from ragen.serving.protocol import ChatCall, Choice, RequestError, answer, chunk, logprobs, read_call, too_long, usage
from ragen.serving.worker import Job, Worker

LARGEST_BODY = 4 << 20  # bytes
Event = tuple[int, int] | Sequence[Completion] | RequestError
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """What is served: the model's name, how its conversations are rendered and sampled, and its limits in tokens."""

    name: str
    tokenizer: Any
    conversations: Conversations
    worker: Worker
    rows: int
    max_context: int
    max_new_tokens: int


def build_app(served: Served) -> Starlette:
    """The application; the worker runs while it does."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        served.worker.start()
        try:
            yield
        finally:
            await asyncio.to_thread(served.worker.stop)

    async def complete(request: Request) -> Response:
        data = await _body(request)
        # reading and encoding a large request takes seconds, in which the loop serves others
        call, context = await asyncio.to_thread(_understood, served, data)
        return await _complete(served, call, context)

    async def models(request: Request) -> Response:
        card = {"id": served.name, "object": "model", "created": 0, "owned_by": "ragen", "max_model_len": served.max_context}
        return JSONResponse({"object": "list", "data": [card]})

    async def health(request: Request) -> Response:
        alive = served.worker.is_alive()
        return JSONResponse({"status": "ok" if alive else "stopped"}, 200 if alive else 503)

    routes = [
        Route("/v1/chat/completions", _guarded(complete), methods=["POST"]),
        Route("/v1/models", models, methods=["GET"]),
        Route("/health", health, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _refuse})


def _guarded(handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Every fault as an error of the protocol; an unforeseen one is logged and never told."""

    async def guarded(request: Request) -> Response:
        try:
            return await handle(request)
        except RequestError as error:
            return _error(error)
        except Exception as error:
            log.warning("a request failed: %s: %s", type(error).__name__, error)
            return _error(RequestError("the server failed on this request; its log says why", status=500))

    return guarded


async def _refuse(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else "failed"
    return _error(RequestError(f"{request.method} {request.url.path}: {detail}", status=status))


def _error(error: RequestError) -> JSONResponse:
    return JSONResponse(error.body(), error.status, {"Retry-After": "1"} if error.status == 429 else None)


async def _body(request: Request) -> bytes:
    """The body; only as application/json, which a foreign web page cannot send here without being asked for permission."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError("the content type must be application/json", status=415)
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > LARGEST_BODY:
            raise RequestError(f"the body is larger than {LARGEST_BODY} bytes", status=413)
    return bytes(data)


def _understood(served: Served, data: bytes) -> tuple[ChatCall, tuple[int, ...]]:
    """What a body asks for, and the ids that the reply is to follow."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        raise RequestError("the body is not valid JSON") from None
    call = read_call(body, served.name)
    if call.choices > served.rows:
        raise RequestError(f"'n' is {call.choices}; this server samples at most {served.rows} replies at once", param="n")
    return call, served.conversations.prompt(call.messages, served.max_context)


async def _complete(served: Served, call: ChatCall, context: tuple[int, ...]) -> Response:
    limit = _limit(served, call, len(context))
    loop, events = asyncio.get_running_loop(), asyncio.Queue[Event]()

    def put(event: Event) -> None:
        with suppress(RuntimeError):  # the loop has ended: nobody listens any more
            loop.call_soon_threadsafe(events.put_nowait, event)

    seed = secrets.randbits(62) if call.seed is None else call.seed
    seeds = tuple(derive(seed, "serve", "choice", i) for i in range(call.choices))
    hear = (lambda choice, token: put((choice, token))) if call.stream else None
    served.worker.submit(Job(context, call.params, seeds, limit, hear, put))
    number = f"chatcmpl-{secrets.token_hex(12)}"
    if call.stream:
        return StreamingResponse(_stream(served, call, number, len(context), events), media_type="text/event-stream")
    event = await events.get()
    if isinstance(event, RequestError):
        raise event
    choices = _choices(served, call, event)
    return JSONResponse(answer(number, served.name, call, context, choices))


def _limit(served: Served, call: ChatCall, length: int) -> int:
    """How many tokens the reply may have: what was asked for, or what is usual and fits."""
    wanted = call.max_tokens
    room = served.max_context - length
    if room < 1 or (wanted is not None and wanted > room):
        raise too_long(served.max_context, str(length), wanted)
    return min(room, served.max_new_tokens) if wanted is None else wanted


def _choices(served: Served, call: ChatCall, completions: Any) -> list[Choice]:
    """What was sampled as it is told, and remembered for the conversation's next turn."""
    choices = []
    for completion in completions:
        text = served.conversations.opener + _before_stop(completion.text, call.params.stop_strings)
        pieces = tuple(decode(served.tokenizer, [token]) for token in completion.token_ids) if call.logprobs else ()
        choices.append(Choice(text, completion, pieces))
        served.conversations.remember(call.messages[-1].content, text, completion.token_ids)
    return choices


def _before_stop(text: str, stops: Sequence[str]) -> str:
    """The text up to the first stop string in it, which is not told."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=len(text))]


async def _stream(
    served: Served, call: ChatCall, number: str, prompt_tokens: int, events: "asyncio.Queue[Event]"
) -> AsyncIterator[str]:
    """Server-sent events: the text of each choice as it grows, how it ended, and ``[DONE]``."""

    def line(index: int, delta: dict[str, Any], finish: str | None = None, **extra: Any) -> str:
        return _event(chunk(number, served.name, index, delta, finish, **extra))

    growing = [_Growing(served, call.params.stop_strings) for _ in range(call.choices)]
    for index in range(call.choices):
        yield line(index, {"role": "assistant", "content": served.conversations.opener})
    while isinstance(event := await events.get(), tuple):
        piece = growing[event[0]].add(event[1])
        if piece:
            yield line(event[0], {"content": piece})
    if isinstance(event, RequestError):
        yield _event(event.body())
        return
    choices = _choices(served, call, event)
    for index, choice in enumerate(choices):
        rest = choice.text.removeprefix(served.conversations.opener)[growing[index].told :]
        extra: dict[str, Any] = {"token_ids": list(choice.completion.token_ids)} if call.token_ids else {}
        extra |= {"logprobs": logprobs(choice)} if call.logprobs else {}
        yield line(index, {"content": rest} if rest else {}, choice.finish, **extra)
    if call.stream_usage:
        yield _event({**chunk(number, served.name, 0, {}), "choices": [], "usage": usage(prompt_tokens, choices)})
    yield "data: [DONE]\n\n"


def _event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


class _Growing:
    """The text of a reply while it is sampled; what may be half a character or half a stop string waits."""

    def __init__(self, served: Served, stops: Sequence[str]) -> None:
        self._tokenizer, self._stops = served.tokenizer, stops
        self._ids: list[int] = []
        self.told = 0

    def add(self, token: int) -> str:
        """The text that the token lets be told."""
        self._ids.append(token)
        text = _before_stop(decode(self._tokenizer, self._ids), self._stops).rstrip("\ufffd")
        open_stop = max((n for stop in self._stops for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        start, self.told = self.told, max(self.told, len(text) - open_stop)
        return text[start : self.told]
