"""From a run or a model to a listening server."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen.config import load_config
from ragen.errors import ConfigError
from ragen.extras import install_command
from ragen.loops.compose import FORCED_THINK, build_agent
from ragen.models.names import MADE
from ragen.runs.models import find_model

if TYPE_CHECKING:
    from ragen.serving.app import Served


def load_served(
    model: str | Path, settings: Mapping[str, Any] | Sequence[str] = (), *, name: str = "", rows: int = 32
) -> "Served":
    """A run's newest checkpoint (with the run's own ``rollout`` settings) or any model, ready to be served.

    A model that is no run gets no forced ``<think>`` unless ``rollout.force_think`` says so. ``name`` is what clients call
    it (default: the run's or directory's name); ``rows`` replies are sampled at once at most.

    Raises ConfigError where the extra 'serve' is not installed.
    """
    try:
        import uvicorn  # noqa: F401

        from ragen.serving.app import Served
    except ImportError:
        raise ConfigError(f"`ragen serve` needs starlette and uvicorn: {install_command('serve')}") from None
    from ragen.serving.conversation import Conversations
    from ragen.serving.worker import Worker

    path, stored = find_model(model)
    basis = {"rollout": {"force_think": False}} if stored is None else stored.model_dump(mode="json")
    config = load_config(basis, settings)
    agent = build_agent(path, config.model, config.rollout)
    forced = FORCED_THINK if config.rollout.thinking and config.rollout.force_think else ""
    return Served(
        name=name or _name(model, None if stored is None else path),
        tokenizer=agent.tokenizer,
        conversations=Conversations(agent.tokenizer, forced=forced),
        worker=Worker(agent.sampler, rows),
        rows=rows,
        max_context=agent.max_context,
        max_new_tokens=config.rollout.max_new_tokens,
    )


def _name(model: str | Path, checkpoint: Path | None) -> str:
    """What clients call it: the run of a checkpoint, or the model's own name."""
    if checkpoint is not None:
        return checkpoint.parent.parent.name
    return str(model) if model in MADE else Path(model).name


def bind(host: str, port: int) -> socket.socket:
    """A listening socket's address, taken before the model is loaded; ConfigError where it cannot be had."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        taken = socket.socket(family, socket.SOCK_STREAM)
        try:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(address)
        except BaseException:
            taken.close()
            raise
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"cannot listen on {host} port {port}: {reason}; choose another --port or --host") from None
    return taken


def run(served: "Served", taken: socket.socket) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    from ragen.serving.app import build_app

    config = uvicorn.Config(build_app(served), log_level="warning", access_log=False, timeout_graceful_shutdown=5)
    uvicorn.Server(config).run(sockets=[taken])
