"""Where an environment's class lies, as text: ``FILE.py:Class`` or ``module:Class``, and back again."""

import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ragen.errors import ConfigError
from ragen.registry import nearest


def label(name: str) -> str:
    """The short name: what stands behind the colon, or a registered name as it is."""
    return name.rpartition(":")[2].rpartition(".")[2] if ":" in name else name


def canonical(name: str) -> str:
    """The name with the whole path of its file, so that it can be found from other directories."""
    place, colon, attribute = name.rpartition(":")
    return f"{Path(place).expanduser().resolve()}:{attribute}" if colon and place.endswith(".py") else name


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
    again = (
        f"A class that was passed by hand is given again as ragen.evaluate(run, env={label(name)}) or ragen.train(…, "
        f"env={label(name)}, resume=run), or by its file: --env FILE.py:{label(name)}"
    )
    if not place or not attribute or place == "__main__" or "<" in attribute:
        raise ConfigError(f"the environment '{name}' has no place from which it can be loaded. {again}")
    try:
        module = _run_file(Path(place)) if place.endswith(".py") else import_module(place)
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part)
    except AttributeError:
        hint = nearest(attribute, [key for key, value in vars(module).items() if isinstance(value, type)] or ["nothing"])
        raise ConfigError(f"'{place}' has no '{attribute}': {hint}") from None
    except Exception as error:
        raise ConfigError(f"the environment '{name}' cannot be loaded: {type(error).__name__}: {error}. {again}") from error
    return found


def _run_file(path: Path) -> ModuleType:
    """The module of a file; its folder is where it finds its neighbours, as it is for a script."""
    name = f"ragen_file{str(path.resolve()).removesuffix('.py').replace('/', '_').replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ConfigError(f"there is no file '{path}'")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"'{path}' is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module  # before it runs: its settings classes look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
