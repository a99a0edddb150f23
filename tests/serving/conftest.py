"""A server in a thread, over the tiny model or over a sampler whose ids are written beforehand."""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ragen.episode import Completion, StopReason
from ragen.samplers.base import Request, SamplingParams
from ragen.samplers.draw import decode

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared_cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEN_CACHE", str(session_cache))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


class Scripted:
    """A sampler that gives these ids; ``calls`` are the batches it was asked for."""

    def __init__(self, tokenizer: Any, ids: Sequence[int] | Callable[[Request], Sequence[int]]) -> None:
        self.tokenizer, self.ids = tokenizer, ids
        self.calls: list[list[Request]] = []
        self.params: list[SamplingParams] = []
        self.gate: threading.Event | None = None

    def generate(self, requests: Sequence[Request], params: SamplingParams, hear: Any = None) -> list[Completion]:
        self.calls.append(list(requests))
        self.params.append(params)
        if self.gate is not None:
            self.gate.wait(30)
        out = []
        for i, request in enumerate(requests):
            ids = tuple(self.ids(request) if callable(self.ids) else self.ids)[: request.max_new_tokens]
            if hear is not None:
                for token in ids:
                    hear(i, token)
            stop = StopReason.LENGTH if len(ids) == request.max_new_tokens else StopReason.END
            out.append(Completion(ids, (-0.5,) * len(ids), (0.1,) * len(ids), decode(self.tokenizer, ids), stop))
        return out


class Client:
    """What a test asks a running server."""

    def __init__(self, port: int) -> None:
        self.port, self.url = port, f"http://127.0.0.1:{port}/v1"

    def send(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> tuple[int, str, Any]:
        """Status, text and headers of an answer; ``body`` is JSON or bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {"Content-Type": kind})
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def chat(self, *contents: str, system: str | None = None, **fields: Any) -> dict[str, Any]:
        """The answer to a conversation of user and assistant in turn."""
        messages = [] if system is None else [{"role": "system", "content": system}]
        messages += [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]
        status, text, _ = self.send("POST", "/v1/chat/completions", {"messages": messages, **fields})
        assert status == 200, text
        return dict(json.loads(text))

    def stream(self, content: str, **fields: Any) -> list[Any]:
        """The events of a streamed answer; the last is ``[DONE]`` as text."""
        body = {"messages": [{"role": "user", "content": content}], "stream": True, **fields}
        status, text, headers = self.send("POST", "/v1/chat/completions", body)
        assert status == 200, text
        assert headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
        return [event if event == "[DONE]" else json.loads(event) for event in events]


@contextmanager
def running(served: Any) -> Iterator[Client]:
    """A server of ``served``."""
    from ragen.serving.app import build_app

    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(build_app(served), log_level="critical", access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            thread.join(0.01)
            assert thread.is_alive(), "the server did not start"
        yield Client(taken.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        taken.close()


Serve = Callable[..., Any]


@pytest.fixture
def scripted(chatml_tokenizer: Any) -> Serve:
    """``scripted(ids, forced=, rows=, max_context=)``: what to serve, and its sampler."""
    from ragen.serving.app import Served
    from ragen.serving.conversation import Conversations
    from ragen.serving.worker import Worker

    def make(ids: Any, *, forced: str = "", rows: int = 8, max_context: int = 400, tokenizer: Any = None) -> Any:
        tokenizer = tokenizer or chatml_tokenizer
        sampler: Any = Scripted(tokenizer, ids)
        conversations = Conversations(tokenizer, forced=forced)
        return Served("m", tokenizer, conversations, Worker(sampler, rows), rows, max_context, 32), sampler

    return make
