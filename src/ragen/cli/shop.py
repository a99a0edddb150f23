"""WebShop in the browser: play it yourself, or follow an agent's stored episode click by click.

Without RUN a goal of the shop is played, under the rules an agent has. With RUN, a run or an evaluation that was kept, its
stored episodes are shown.
Served on this machine only; Ctrl-C ends it.
"""

import argparse
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ragen.cli.arguments import refuse_without_effect
from ragen.cli.show import choose_episodes, chosen
from ragen.errors import ConfigError
from ragen.registry import nearest

if TYPE_CHECKING:
    from ragen.envs.webshop import WebShop

OVERRIDES: str | None = "settings of the shop may follow as --env.key VALUE (`ragen envs webshop` lists them), without RUN"
PORT = 8809
NOTE = "Ctrl-C ends this"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "run", metavar="RUN", nargs="?", help="a run or a kept evaluation, by path or by name (default: play)"
    )
    parser.add_argument("--instance", type=int, help="the goal to begin with (0)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port on 127.0.0.1 ({PORT}; 0 = any that is free)")
    choose_episodes(parser)


def run(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    """Serve until Ctrl-C."""
    return _play(args, overrides) if args.run is None else _replay(args, overrides)


def _play(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    from ragen.config import load_config
    from ragen.shop.play import Episodes
    from ragen.shop.server import PlayServer

    choosing = argparse.ArgumentParser()
    choose_episodes(choosing)
    given = [name for name, default in vars(choosing.parse_args([])).items() if getattr(args, name) != default]
    if given:
        raise ConfigError(f"--{given[0]} chooses among a run's episodes: name the RUN (`ragen shop RUN --{given[0]} …`)")
    refuse_without_effect("ragen shop", overrides, ("env",))
    goal = args.instance or 0
    if goal < 0:
        raise ConfigError(f"--instance is {goal}; use 0 or more")
    spec = load_config({"env": {"name": "webshop"}}, overrides).env
    shop_of(spec)  # wrong settings and missing files are said here, and the index is made
    with PlayServer(Episodes(lambda: shop_of(spec)), goal, args.port) as server:
        server.serve(NOTE)
    return 0


def _replay(args: argparse.Namespace, overrides: Sequence[str]) -> int:
    from ragen.runs.stored import env_of, episodes, open_stored
    from ragen.shop.record import Records
    from ragen.shop.server import ReplayServer

    if overrides or args.instance is not None:
        word = overrides[0] if overrides else "--instance"
        raise ConfigError(f"{word} means nothing beside a run, which has its own settings and goals: leave it out")
    opened = open_stored(args.run)
    env = shop_of(env_of(opened))
    read = episodes(opened, args.step)
    with ReplayServer(Records(env, chosen(read, args), read.about), args.port) as server:
        server.serve(NOTE)
    return 0


def shop_of(spec: Mapping[str, Any]) -> "WebShop":
    """The shop of a section ``env``; ConfigError for another environment. A file that it may lie in is not run."""
    from ragen.envs import environments
    from ragen.envs.webshop import WebShop

    name = str(spec.get("name", ""))
    preset = environments.get(name) if name in environments.names() else None
    if preset is None and ":" not in name:
        shops = [each for each in environments.names() if issubclass(environments.get(each).cls, WebShop)]
        raise ConfigError(f"there is no environment '{name}': {nearest(name, shops)}")
    if preset is None or not issubclass(preset.cls, WebShop):
        raise ConfigError(
            f"the environment is '{name}', which is no shop: `ragen shop` shows webshop and webshop-15, others have "
            f"`ragen play {shlex.quote(name)}` and `ragen report RUN`"
        )
    return preset.cls(preset.settings({key: value for key, value in spec.items() if key != "name"}))
