"""``ragen``: finds the subcommand, runs it, and turns RagenErrors into messages without a trace."""

import argparse
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from ragen.cli.arguments import Parser, options_of, split_overrides
from ragen.cli.mistyped import refuse_mistyped
from ragen.cli.output import PrintableFormatter, complain, tell
from ragen.errors import RagenError
from ragen.registry import nearest

COMMANDS = {
    "train": "train an agent (a preset or a YAML file)",
    "eval": "evaluate a run, a model or an API model on fixed instances",
    "compare": "compare models on the same instances",
    "serve": "serve a trained agent as an OpenAI-compatible endpoint",
    "warmup": "teach a model the reply format on demonstrations",
    "play": "play an environment yourself",
    "shop": "play WebShop in the browser, or replay an agent's episodes there",
    "study": "run a grid of settings over seeds, and report it",
    "runs": "list runs and how far they are",
    "show": "print stored trajectories of a run",
    "export": "write trajectories for training elsewhere, or for a warm-up",
    "plot": "draw learning curves of runs",
    "report": "write a page of runs: summary, curves, every episode",
    "watch": "follow a training in the browser",
    "envs": "list environments, or the settings of one",
    "presets": "list training presets",
    "doctor": "check machine and model",
    "bench": "time sampling and training on this machine",
}
_MODULES = {name: f"ragen.cli.{'evaluate' if name == 'eval' else name}" for name in COMMANDS}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit status (2 for an error a user can mend)."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_streams()
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    try:
        with _sigterm_as_ctrl_c():
            return _dispatch(words)
    except RagenError as error:
        complain(f"error: {error}\n")
        return 2
    except BrokenPipeError:
        # the reader (head, less) has gone: not an error, and nothing may be written any more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:  # with what is left of the work, where there is something to say
        complain("\n" + ": ".join(("interrupted", *map(str, stop.args))) + "\n")
        return 130


def _prepare_streams() -> None:
    """Write to nowhere where an output was closed, and print '?' for what its encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 (open until the process ends)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """So that a stopped process, too, cleans up behind it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        _overview().print_help()
        return 0 if words else 2
    if words[0] == "--version":
        from ragen import __version__

        tell(f"ragen {__version__}\n")
        return 0
    name = words[0]
    if name not in COMMANDS:
        _overview_error(name)
    module, parser, own = import_module(_MODULES[name]), _parser(name), words[1:]
    overrides: list[str] = []
    if module.OVERRIDES is not None:
        own, overrides = split_overrides(own, options_of(parser))
    refuse_mistyped(
        parser, own, None if module.OVERRIDES is None else overrides, lambda: {each: _parser(each) for each in COMMANDS}
    )
    args = parser.parse_args(own)
    return int(module.run(args, overrides))


def _parser(name: str) -> Parser:
    """The parser of a command."""
    module = import_module(_MODULES[name])
    parser = Parser(prog=f"ragen {name}", description=module.__doc__, allow_abbrev=False)
    parser.formatter_class, parser.epilog = argparse.RawDescriptionHelpFormatter, module.OVERRIDES
    module.configure(parser)
    return parser


def _overview() -> Parser:
    lines = "\n".join(f"  {name:<9} {about}" for name, about in COMMANDS.items())
    return Parser(
        prog="ragen",
        usage="ragen COMMAND …  (ragen COMMAND --help)",
        description="Train and study language-model agents by multi-turn reinforcement learning (StarPO, StarPO-S).",
        epilog=f"commands:\n{lines}\n\nfirst steps: ragen train bandit-starpo-s-grpo-tiny, then …-small (SmolLM2-135M)",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def _overview_error(name: str) -> None:
    _overview().error(f"unknown command '{name}': {nearest(name, [*COMMANDS, '--help', '--version'])}")


if __name__ == "__main__":
    sys.exit(main())
