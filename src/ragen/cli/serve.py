"""Serve a run, a checkpoint or a model as an OpenAI-compatible endpoint (extra 'serve'; docs/evaluation.md)."""

import argparse
import sys
from collections.abc import Sequence

from ragen.cli.arguments import positive, refuse_model, refuse_without_effect
from ragen.cli.output import complain, tell
from ragen.cli.waiting import LOADING, doing
from ragen.errors import ConfigError

COUNTING = (
    *(f"model.{name}" for name in ("device", "dtype", "trust_remote_code")),
    *(f"rollout.{name}" for name in ("max_new_tokens", "max_context", "thinking", "force_think")),
)  # the settings that a served model reads; what a client's request says goes before
OVERRIDES: str | None = f"settings may follow as --section.key VALUE: {', '.join(COUNTING)}"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("model", metavar="MODEL_OR_RUN", help="a run, a checkpoint directory, a model directory or name")
    parser.add_argument("--host", default=LOOPBACK[0], help="address to listen on (127.0.0.1: only this machine)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (8000; 0 = any free one)")
    parser.add_argument("--name", default="", help="what clients call the model (default: the run's or directory's name)")
    parser.add_argument("--rows", type=positive, default=32, metavar="N", help="replies sampled at once at most (32)")


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    refuse_model(overrides, f"the first argument ({args.model})")
    if not 0 <= args.port < 2**16:
        raise ConfigError(f"--port is {args.port}: it must be between 0 and 65535")
    refuse_without_effect("ragen serve", overrides, COUNTING)
    from ragen.config import load_config
    from ragen.runs.models import known_model

    load_config({}, overrides)  # a wrong setting or name shows before torch is loaded
    known_model(args.model)
    with doing(LOADING):
        from ragen.serving import server

    with server.bind(args.host, args.port) as taken:
        served = server.load_served(args.model, overrides, name=args.name, rows=args.rows)
        host, port = taken.getsockname()[:2]
        if args.host not in LOOPBACK:
            complain(f"note: anyone who reaches {host}:{port} can use this model; there is no key\n")
        place = f"[{host}]" if ":" in host else host
        tell(f"serving '{served.name}' at http://{place}:{port}/v1   (Ctrl-C ends it)\n")
        sys.stdout.flush()
        server.run(served, taken)
    return 0
