"""Where an environment's class lies, as text: ``FILE.py:Class`` or ``module:Class``, and back again."""

import ast
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ragen.envs.base import Environment
from ragen.errors import ConfigError, reason
from ragen.modules import broken, no_file, run_file, whole_path
from ragen.registry import nearest

SHOWN = 3  # classes named in an error at most


def label(name: str) -> str:
    """The short name: what stands behind the colon, or a registered name as it is."""
    return name.rpartition(":")[2].rpartition(".")[2] if ":" in name else name


def shown(name: str) -> str:
    """The name without the folders of its file, for people to read.

    >>> shown("/long/path/my_env.py:MyEnv"), shown("package.envs:MyEnv"), shown("bandit")
    ('my_env.py:MyEnv', 'package.envs:MyEnv', 'bandit')
    """
    place, colon, attribute = name.rpartition(":")
    return f"{place.replace(os.sep, '/').rpartition('/')[2]}{colon}{attribute}"


def canonical(name: str) -> str:
    """The name with the whole path of its file, so that it can be found from other directories."""
    place, colon, attribute = name.rpartition(":")
    return f"{whole_path(place)}:{attribute}" if colon and place.endswith(".py") else name


def name_of(source: Any) -> str:
    """The name of a class or function passed by hand: its file for a module of its own, its module in a package.

    What stands in the script that runs (``__main__``), or inside a function, cannot be found again by its name.
    """
    named = source if hasattr(source, "__qualname__") else type(source)
    module = sys.modules.get(named.__module__)
    file = getattr(module, "__file__", None)
    single = "." not in named.__module__ and named.__module__ != "__main__"
    return f"{file if single and file else named.__module__}:{named.__qualname__}"


def load(name: str) -> Any:
    """What ``name`` stands for; a file is run once a process. ConfigError where it is not there."""
    place, _, attribute = name.rpartition(":")
    if place == "__main__" or "<" in attribute:
        raise ConfigError(f"the environment '{name}' has no place from which it can be loaded. {_by_hand(label(name))}")
    path = Path(place)
    if not place or not attribute or place.endswith(":"):
        raise ConfigError(f"env.name is '{name}': {_how_to_write(name)}")
    try:
        there = path.is_file()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the environment's file '{place}' cannot be read: {reason(error)}") from None
    if there and path.suffix != ".py":
        raise ConfigError(f"'{place}' is not a Python file: its name must end in .py")
    found: Any = run_file(path) if path.suffix == ".py" else _imported(place, attribute)
    for part in attribute.split("."):
        if not hasattr(found, part):
            known = _environments_in(found)
            hint = nearest(part, known) if known else "nor a class that extends ragen.Environment"
            raise ConfigError(f"'{place}' has no '{attribute}': {hint}")
        found = getattr(found, part)
    if isinstance(found, type) and not issubclass(found, Environment):
        others = ", ".join(_environments_in(sys.modules.get(found.__module__))[:SHOWN])
        beside = f"; these do: {others}" if others else ""
        raise ConfigError(f"'{place}' has a class '{attribute}', but it does not extend ragen.Environment{beside}")
    return found


def near_place(name: str) -> str:
    """What a name without ':' may have meant, where it looks like a file or a module; empty where it does not."""
    if ".py" in name or "/" in name:
        return _how_to_write(name)
    place, dot, attribute = name.rpartition(".")
    file = Path(f"{place.replace('.', '/')}.py")
    if not dot or not place:
        return ""
    return f"did you mean '{file}:{attribute}'?" if file.is_file() else f"a class of a module is written {place}:{attribute}"


def _how_to_write(name: str) -> str:
    """How a name that was meant for ``FILE.py:Class`` is written, with the names there are."""
    file, ending, rest = name.partition(".py")
    path, attribute = Path(f"{file or 'FILE'}.py"), rest.strip(":/. ")
    if not ending:
        return f"a class in a file is written FILE.py:{name.strip(':').rpartition('/')[2] or 'Class'}"
    if not path.is_file():
        return no_file(path)
    known = _class_names(path)
    if attribute:
        return f"did you mean '{path}:{next(iter(get_close_matches(attribute, known, n=1)), attribute)}'?"
    return f"name the class as well, {' or '.join(f'{path}:{each}' for each in known[:SHOWN]) or f'{path}:Class'}"


def _class_names(path: Path) -> list[str]:
    """The classes at the top of a file that may be environments (settings are not), without running it."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
    return [node.name for node in classes if not any(ast.unparse(base).endswith("Settings") for base in node.bases)]


def _environments_in(home: Any) -> list[str]:
    """The names of the environments in a module or class."""
    return [
        key
        for key, value in vars(home).items()
        if isinstance(value, type) and issubclass(value, Environment) and value is not Environment
    ]


def _by_hand(name: str) -> str:
    return (
        f"A class that was passed by hand is given again as ragen.evaluate(run, env={name}) or ragen.train(…, "
        f"env={name}, resume=run), or by its file: --env FILE.py:{name}"
    )


def _imported(place: str, attribute: str) -> ModuleType:
    try:
        return import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise broken(place, error) from error
    except (Exception, SystemExit) as error:
        raise broken(place, error) from error
    file = Path(f"{place.replace('.', '/')}.py")
    hint = f"did you mean '{file}:{attribute}'?" if file.is_file() else _by_hand(attribute)
    raise ConfigError(f"the environment's module '{place}' is not found by Python: {hint}")
