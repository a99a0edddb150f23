"""An HTTP server that speaks chat completions as a test tells it to, faults included."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Headers = dict[str, str]


@dataclass
class Answer:
    """One HTTP answer: ``body`` is JSON or raw text; ``cut`` closes the connection after so many bytes of it."""

    body: Any
    status: int = 200
    headers: Headers = field(default_factory=dict)
    cut: int | None = None
    stall: float = 0.0


def completion(content: Any, finish: Any = "stop", *, usage: Any = (10, 5), **message: Any) -> Answer:
    """A chat completion with this content."""
    told = {} if usage is None else {"usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]}}
    choice = {"index": 0, "message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}
    return Answer({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], **told})


def refusal(status: int, message: str, code: str | None = None, **headers: str) -> Answer:
    """An error in OpenAI's form."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer({"error": {"message": message, "type": "t", "code": code}}, status, named)


class Endpoint:
    """Answers with ``script(request, number)``; ``requests`` are the bodies it was sent, ``headers`` what came with them."""

    def __init__(self, script: Callable[[dict[str, Any], int], Answer]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[Headers] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.end = threading.Event()
        self.script = script
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with endpoint.lock:
                    endpoint.requests.append(body)
                    endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
                    number = len(endpoint.requests) - 1
                    endpoint.at_once += 1
                    endpoint.most_at_once = max(endpoint.most_at_once, endpoint.at_once)
                try:
                    self._answer(endpoint.script(body, number))
                except (BrokenPipeError, ConnectionResetError):
                    pass
                finally:
                    with endpoint.lock:
                        endpoint.at_once -= 1

            def _answer(self, answer: Answer) -> None:
                if answer.stall:
                    endpoint.end.wait(answer.stall)
                data = (answer.body if isinstance(answer.body, str) else json.dumps(answer.body)).encode()
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data if answer.cut is None else data[: answer.cut])
                if answer.cut is not None:
                    self.wfile.flush()
                    self.close_connection = True

            def log_message(self, *parts: Any) -> None:
                pass

        return Handler


@contextmanager
def serving(script: Callable[[dict[str, Any], int], Answer] | Answer | list[Answer]) -> Iterator[Endpoint]:
    """A running endpoint: one answer always, a list in the order of the requests (the last one again), or a function."""
    answers = [script] if isinstance(script, Answer) else script if isinstance(script, list) else []
    endpoint = Endpoint((lambda body, number: answers[min(number, len(answers) - 1)]) if answers else script)  # type: ignore[arg-type]
    thread = threading.Thread(target=endpoint.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.end.set()
        endpoint.server.shutdown()
        endpoint.server.server_close()
        thread.join()
