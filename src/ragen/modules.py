"""Python files and modules named in settings, run once a process."""

import sys
import traceback
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ragen.errors import ConfigError
from ragen.registry import nearest


def load_plugins(names: tuple[str, ...]) -> None:
    """Run these files (``FILE.py``) and import these modules: what they register is known from then on.

    Raises ConfigError for one that is not there or fails.
    """
    for name in names:
        if name.endswith(".py"):
            run_file(Path(name))
            continue
        try:
            import_module(name)
        except Exception as error:
            missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
            raise (_unknown(name) if missing else broken(name, error)) from error


def run_file(path: Path) -> ModuleType:
    """The module of a file; its folder is where it finds its neighbours, as it is for a script."""
    name = f"ragen_file{str(path.resolve()).removesuffix('.py').replace('/', '_').replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    if not path.is_file():
        raise ConfigError(no_file(path))
    for module in list(sys.modules.values()):  # imported by the caller's script: what it registers is there
        if module.__name__ != "__main__" and getattr(module, "__file__", None) == str(path.resolve()):
            return module
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"'{path}' is not a Python file")
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    module = module_from_spec(spec)
    sys.modules[name] = module  # before it runs: its settings classes look themselves up there
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception):
            raise broken(str(path), error) from error
        raise
    return module


def broken(place: str, error: Exception) -> ConfigError:
    """The file is there and fails by itself: what it raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    return ConfigError(f"'{place}' cannot be loaded: {type(error).__name__}: {error}{where}")


def no_file(path: Path) -> str:
    """What to say of a Python file that is not there."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder '{folder}'"
    there = [file.name for file in folder.glob("*.py")]
    return f"there is no file '{path}': {nearest(path.name, there) if there else 'its folder holds no Python file'}"


def _unknown(name: str) -> ConfigError:
    file = Path(f"{name.replace('.', '/')}.py")
    hint = f"did you mean '{file}'?" if file.is_file() else "name a file that ends in .py, or a module that Python finds"
    return ConfigError(f"plugins: there is no module '{name}': {hint}")
