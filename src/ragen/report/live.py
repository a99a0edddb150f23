"""The report of a run that goes on: the page, served on this machine only, asks for what is new."""

import json
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from ragen.errors import RagenError
from ragen.localserver import LocalHandler, LocalServer
from ragen.report.file import overview_of, packer_of, plain
from ragen.report.page import head, packed, page
from ragen.report.steps import PackedStep, Packer
from ragen.runs.directory import RunDirectory
from ragen.runs.lock import writer

KEPT_BODIES = 8


class LiveRun:
    """A run directory read again and again; a step is packed when it is first asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, Lock()
        self._packer: tuple[Packer, list[str]] | None = None
        self._head: tuple[object, bytes] | None = None
        self._indices: dict[tuple[int, int], bytes] = {}
        self._bodies: OrderedDict[tuple[int, int], bytes] = OrderedDict()

    def head(self) -> bytes:
        """The head of the page as it is now, gzipped JSON, made again where a file has changed.

        Raises RagenError for damaged files.
        """
        with self._lock:
            state = _state(self._path)
            if self._head is None or self._head[0] != state:
                run = RunDirectory.open(self._path)
                self._head = state, packed(head([plain(overview_of(run), self._packing(run)[1])]))
            return self._head[1]

    def index(self, step: int) -> bytes:
        """The columns of a stored step, gzipped JSON."""
        return self._step(step, self._indices)

    def body(self, step: int) -> bytes:
        """The records of a stored step, gzipped JSON."""
        return self._step(step, self._bodies)

    def _step(self, step: int, wanted: dict[tuple[int, int], bytes]) -> bytes:
        with self._lock:
            run = RunDirectory.open(self._path)
            key = (step, _written(run, step))
            if key not in wanted:
                made: PackedStep = self._packing(run)[0].pack(step, run.trajectories(step))
                self._indices[key], self._bodies[key] = packed(made.index), packed(made.body)
                while len(self._bodies) > KEPT_BODIES:
                    self._bodies.popitem(last=False)
            return wanted[key]

    def _packing(self, run: RunDirectory) -> tuple[Packer, list[str]]:
        if self._packer is None:
            self._packer = packer_of(run)
        return self._packer


def _state(path: Path) -> tuple[object, ...]:
    """What differs where a head would: times and sizes of the files it is made from, and who writes."""
    names = ("config.yaml", "metrics.jsonl", "provenance.json", "ended.json", "trajectories")  # a folder's time: new files
    folders = [file for part in ("eval", "rollbacks") for file in (path / part).glob("*.json")]
    files = [*(path / name for name in names), *folders]
    stats = [(file, file.stat()) for file in files if file.exists()]
    return writer(path), *((file.name, stat.st_mtime_ns, stat.st_size) for file, stat in stats)


def _written(run: RunDirectory, step: int) -> int:
    file = run.trajectory_file(step)
    return file.stat().st_mtime_ns if file.is_file() else 0


class Watch(LocalServer):
    """Serves one run. Port 0 takes a free one; raises ConfigError where the port cannot be had."""

    def __init__(self, run: Path, port: int) -> None:
        self.live = LiveRun(run)
        self.shell = "".join(page(None)).encode()
        super().__init__(port, _Handler)


class _Handler(LocalHandler):
    server: Watch

    def get(self) -> None:
        """Answer the page's questions."""
        url = urlsplit(self.path)
        live = self.server.live
        if url.path == "/":
            self.answer(HTTPStatus.OK, self.server.shell, "text/html; charset=utf-8")
        elif url.path == "/head":
            self._packed(live.head)
        elif url.path in ("/index", "/body") and (step := _step_of(url.query)) is not None:
            self._packed(lambda: (live.index if url.path == "/index" else live.body)(step))
        else:
            self.nothing()

    def _packed(self, make: Callable[[], bytes]) -> None:
        try:
            self.answer(HTTPStatus.OK, make(), "application/json", {"Content-Encoding": "gzip"})
        except (RagenError, OSError) as error:  # damaged, or just being replaced: the page says it and asks again
            said = json.dumps({"error": str(error)}).encode("ascii")
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, said, "application/json")


def _step_of(query: str) -> int | None:
    (value,) = parse_qs(query).get("step", [""])[:1]
    return int(value) if value.isascii() and value.isdigit() and len(value) < 10 else None
