"""A web server for this machine only: it listens on 127.0.0.1 and answers to the machine's own names alone."""

import sys
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from ragen.errors import ConfigError

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")  # a page of another name that leads here could read what is served (DNS rebinding)
PLAIN = "text/plain; charset=utf-8"
NOTHING: Mapping[str, str] = MappingProxyType({})


class LocalServer(ThreadingHTTPServer):
    """Listens on 127.0.0.1. Port 0 takes a free one; raises ConfigError where the port cannot be had."""

    daemon_threads = True

    def __init__(self, port: int, handler: type["LocalHandler"]) -> None:
        if not 0 <= port < 2**16:
            raise ConfigError(f"--port is {port}; use 0 (any that is free) to 65535")
        try:
            super().__init__((HOST, port), handler)
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(
                f"--port {port} cannot be used: {reason}; choose another one, or 0 for any that is free"
            ) from None

    @property
    def address(self) -> str:
        """What a browser is given."""
        return f"http://{HOST}:{self.server_address[1]}/"

    def serve(self, note: str) -> None:
        """Tell the address with ``note`` and serve until Ctrl-C."""
        sys.stdout.write(f"{self.address}   ({note})\n")
        sys.stdout.flush()
        try:
            self.serve_forever()
        except KeyboardInterrupt:
            sys.stdout.write("\n")


class LocalHandler(BaseHTTPRequestHandler):
    """Hands questions that name this machine to ``get``."""

    timeout = 30  # seconds that a request may take to arrive

    def do_GET(self) -> None:
        """Answer a question; to nobody else."""
        if self.named():
            self.get()

    def get(self) -> None:
        """Answer a question: what a subclass does not serve is not there."""
        self.nothing()

    def nothing(self) -> None:
        """Say that there is nothing."""
        self.answer(HTTPStatus.NOT_FOUND, b"nothing is here\n", PLAIN)

    def answer(self, status: HTTPStatus, data: bytes, kind: str, headers: Mapping[str, str] = NOTHING) -> None:
        """Send an answer that no browser keeps or takes for another kind."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        try:
            self.wfile.write(data)
        except ConnectionError:  # the page was closed
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class has this name)
        """Say nothing of what is asked."""

    def named(self) -> bool:
        """Whether the request names this machine; others are refused."""
        host = self.headers.get("Host", "")
        if (host.rpartition(":")[0] or host) in NAMES:
            return True
        self.answer(HTTPStatus.FORBIDDEN, b"this server answers to 127.0.0.1 and localhost only\n", PLAIN)
        return False
