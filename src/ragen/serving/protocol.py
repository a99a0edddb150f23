"""The protocol: what a request may say, and the JSON of answers and errors (OpenAI's chat completions)."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from ragen.config.bounds import COLDEST, HOTTEST
from ragen.episode import Completion, StopReason
from ragen.samplers.base import SamplingParams
from ragen.samplers.chat import Message

MOST_CHOICES, MOST_STOPS = 32, 16
_NO_EFFECT: tuple[
    tuple[str, tuple[Any, ...]], ...
] = (  # a value that asks for nothing is accepted, any other refused: nothing is silently left out
    ("tools", ([],)),
    ("tool_choice", ("none", "auto")),
    ("functions", ([],)),
    ("response_format", ({"type": "text"},)),
    ("logit_bias", ({},)),
    ("presence_penalty", (0,)),
    ("frequency_penalty", (0,)),
    ("top_logprobs", (0,)),
)


class RequestError(Exception):
    """What is wrong with a request, in the form the protocol gives it."""

    def __init__(self, message: str, *, status: int = 400, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.param = status, code, param

    def body(self) -> dict[str, Any]:
        """The JSON of the error."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")
    type: Literal["text"]
    text: str


class _Message(BaseModel):
    model_config = ConfigDict(extra="allow")
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]


class _StreamOptions(BaseModel):
    include_usage: StrictBool = False


class _Body(BaseModel):
    """All fields that are understood; those without a use here are harmless to leave out."""

    model_config = ConfigDict(extra="forbid")
    messages: list[_Message] = Field(min_length=1)
    model: str | None = None
    n: int | None = Field(None, ge=1, le=MOST_CHOICES)
    temperature: float | None = Field(None, ge=0, le=HOTTEST, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0)
    min_p: float | None = Field(None, ge=0, lt=1)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    logprobs: StrictBool | None = None
    stream: StrictBool | None = None
    stream_options: _StreamOptions | None = None
    return_token_ids: StrictBool | None = None
    user: Any = None
    metadata: Any = None
    store: Any = None
    service_tier: Any = None
    safety_identifier: Any = None
    prompt_cache_key: Any = None
    parallel_tool_calls: Any = None


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A request that was understood; ``max_tokens`` None: the server's own limit."""

    messages: tuple[Message, ...]
    params: SamplingParams
    choices: int
    max_tokens: int | None
    seed: int | None
    logprobs: bool
    stream: bool
    stream_usage: bool
    token_ids: bool


def read_call(body: Any, served: str) -> ChatCall:
    """The request in a JSON body; RequestError with the reason where it cannot be done as it says."""
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    body = dict(body)
    for name, harmless in _NO_EFFECT:
        value = body.pop(name, None)
        if value is not None and value not in harmless:
            raise RequestError(
                f"'{name}' is not supported by this server; leave it out", code="unsupported_parameter", param=name
            )
    try:
        read = _Body.model_validate(body)
    except ValidationError as error:
        raise _invalid(error) from None
    if read.model is not None and read.model != served:
        raise RequestError(
            f"the model {read.model!r} does not exist here; this server has '{served}'",
            status=404,
            code="model_not_found",
            param="model",
        )
    return ChatCall(
        messages=_conversation(read.messages),
        params=_params(read),
        choices=read.n or 1,
        max_tokens=read.max_completion_tokens or read.max_tokens,
        seed=read.seed,
        logprobs=bool(read.logprobs),
        stream=bool(read.stream),
        stream_usage=bool(read.stream_options and read.stream_options.include_usage),
        token_ids=bool(read.return_token_ids),
    )


def too_long(max_context: int, length: str, wanted: int | None = None) -> RequestError:
    """The error of a request whose messages have ``length`` tokens and leave no room for a reply of ``wanted``."""
    return RequestError(
        f"this model's maximum context length is {max_context} tokens, but there are {length} in the messages"
        + (f" and {wanted} in the completion" if wanted is not None else "")
        + ": shorten one of them",
        code="context_length_exceeded",
        param="messages",
    )


def _invalid(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return RequestError(f"unknown field '{where}'", code="unknown_parameter", param=where)
    return RequestError(f"'{where}': {first['msg']}", code="invalid_value", param=where)


def _params(read: _Body) -> SamplingParams:
    temperature = 1.0 if read.temperature is None else read.temperature
    if 0 < temperature < COLDEST:
        raise RequestError(
            f"'temperature' must be 0 (greedy) or at least {COLDEST}", code="invalid_value", param="temperature"
        )
    stops = (read.stop,) if isinstance(read.stop, str) else tuple(read.stop or ())
    if "" in stops or len(stops) > MOST_STOPS:
        raise RequestError(f"'stop' must hold at most {MOST_STOPS} texts, none empty", code="invalid_value", param="stop")
    return SamplingParams(temperature, 1.0 if read.top_p is None else read.top_p, read.top_k or 0, read.min_p or 0.0, stops)


def _conversation(messages: Sequence[_Message]) -> tuple[Message, ...]:
    """System message (optional), user, assistant, user, …, user: the one order that a conversation with an agent has."""
    out: list[Message] = []
    for number, given in enumerate(messages):
        extra = given.model_extra or {}
        if extra.get("tool_calls") or extra.get("function_call"):
            raise RequestError("tool calls are not supported by this server", param=f"messages.{number}.tool_calls")
        text = given.content if isinstance(given.content, str) else "".join(part.text for part in given.content)
        out.append(Message("system" if given.role in ("system", "developer") else given.role, text))  # type: ignore[arg-type]
    turns = out[1:] if out[0].role == "system" else out
    wanted = ["user", "assistant"] * len(turns)
    if not turns or len(turns) % 2 == 0 or [m.role for m in turns] != wanted[: len(turns)]:
        raise RequestError(
            "the messages must be a system message or none, then user and assistant in turn, a user message last; they are "
            + ", ".join(message.role for message in out[:20]),
            param="messages",
        )
    return tuple(out)


@dataclass(frozen=True, slots=True)
class Choice:
    """One reply as it is told: its ``text`` without stop strings, the sampled ``completion``, and the text of each token."""

    text: str
    completion: Completion
    pieces: tuple[str, ...]

    @property
    def finish(self) -> str:
        """The protocol's word for why it ended."""
        return "length" if self.completion.stop is StopReason.LENGTH else "stop"


def answer(number: str, model: str, call: ChatCall, prompt_ids: Sequence[int], choices: Sequence[Choice]) -> dict[str, Any]:
    """The JSON of a whole answer. ``return_token_ids`` adds ``prompt_token_ids``, and ``token_ids`` to each choice."""
    body: dict[str, Any] = {
        "id": number,
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [_choice(i, choice, call) for i, choice in enumerate(choices)],
        "usage": usage(len(prompt_ids), choices),
    }
    if call.token_ids:
        body["prompt_token_ids"] = list(prompt_ids)
    return body


def _choice(index: int, choice: Choice, call: ChatCall) -> dict[str, Any]:
    out: dict[str, Any] = {
        "index": index,
        "message": {"role": "assistant", "content": choice.text, "refusal": None},
        "logprobs": logprobs(choice) if call.logprobs else None,
        "finish_reason": choice.finish,
    }
    if call.token_ids:
        out["token_ids"] = list(choice.completion.token_ids)
    return out


def chunk(
    number: str, model: str, index: int, delta: dict[str, Any], finish: str | None = None, **extra: Any
) -> dict[str, Any]:
    """The JSON of one piece of a streamed answer."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish, **extra}
    created = int(time.time())
    return {"id": number, "object": "chat.completion.chunk", "created": created, "model": model, "choices": [choice]}


def logprobs(choice: Choice) -> dict[str, Any]:
    """Each sampled token with its log-probability (nats) under the distribution it was drawn from."""
    content = [
        {
            "token": piece,
            "logprob": value,
            "bytes": None if "\ufffd" in piece else list(piece.encode()),  # part of a character has no text of its own
            "top_logprobs": [],
        }
        for piece, value in zip(choice.pieces, choice.completion.logprobs, strict=True)
    ]
    return {"content": content, "refusal": None}


def usage(prompt_tokens: int, choices: Sequence[Choice]) -> dict[str, int]:
    """Token counts: those sampled include the end of turn."""
    sampled = sum(choice.completion.length for choice in choices)
    return {"prompt_tokens": prompt_tokens, "completion_tokens": sampled, "total_tokens": prompt_tokens + sampled}
