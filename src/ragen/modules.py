"""Python files and modules named in settings, run once a process."""

import os
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from ragen.errors import ConfigError, reason
from ragen.registry import nearest


def load_plugins(names: tuple[str, ...]) -> None:
    """Run these files (``FILE.py``) and import these modules: what they register is known from then on.

    Raises ConfigError for one that is not there or fails.
    """
    for name in names:
        if name.endswith(".py"):
            run_file(Path(name))
            continue
        if not name.strip(".") or name.startswith(".") or "\0" in name:  # what Python takes for something else
            raise _unknown(name)
        try:
            import_module(name)
        except (Exception, SystemExit) as error:  # one that leaves must not end the command as if it were done
            missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
            raise (_unknown(name) if missing else broken(name, error)) from error


def whole_path(name: str) -> str:
    """The path of a file from the root on; a name that no path can be made of stays as it is, for ``run_file`` to refuse."""
    try:
        return str(Path(name).expanduser().resolve())
    except (OSError, RuntimeError, ValueError):  # a user who is not there, a link that leads to itself, a NUL
        return name


def run_file(path: Path) -> ModuleType:
    """The module of a file; its folder is where it finds its neighbours, as it is for a script."""
    place = os.path.realpath(path)  # of a link that leads to itself, too, which ``resolve`` is not told
    name = f"ragen_file{place.removesuffix('.py').replace('/', '_').replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    try:
        there = path.is_file()
    except (OSError, ValueError) as error:
        raise ConfigError(f"the file '{path}' cannot be read: {reason(error)}") from None
    if not there:
        raise ConfigError(no_file(path))
    for imported, module in list(sys.modules.items()):  # by the caller's script: what it registers is there
        if imported != "__main__" and getattr(module, "__file__", None) == place:  # the module is None where one is barred
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
        if isinstance(error, Exception | SystemExit):
            raise broken(str(path), error) from error
        raise
    return module


def broken(place: str, error: BaseException) -> ConfigError:
    """The file is there and fails by itself: what it raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    return ConfigError(f"'{place}' cannot be loaded: {_words(error)}{where}")


def told(error: BaseException, cls: type | None) -> str:
    """An exception in words, with the innermost line of it that lies in the file of ``cls``, where there is one."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) if cls is not None else None
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    where = f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""
    return f"{_words(error)}{where}"


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}{f': {error}' if str(error) else ''}"


def no_file(path: Path) -> str:
    """What to say of a Python file that is not there."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder '{folder}'"
    there = [file.name for file in folder.glob("*.py") if file.is_file()]
    return f"there is no file '{path}': {nearest(path.name, there) if there else 'its folder holds no Python file'}"


def _unknown(name: str) -> ConfigError:
    hint = "name a file that ends in .py, or a module that Python finds"
    for file in (Path(f"{name.replace('.', '/')}.py"), Path(f"{name}.py")):
        with suppress(OSError, ValueError):  # for example a name that is too long for a file
            if file.is_file():
                hint = f"did you mean '{file}'?"
                break
    return ConfigError(f"plugins: there is no module {name!r}: {hint}")
