"""Run the code as a script would be run: its own ``__main__``, its own traceback, its exit code."""

import builtins
import linecache
import sys
import traceback
from types import ModuleType

NAME = "<python>"


def run(code: str) -> int:
    """The exit code: 0, or 1 after an exception, whose traceback shows the code's own lines only."""
    main = ModuleType("__main__")
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # a Python without `site` has neither
    sys.modules["__main__"] = main
    lines = code.splitlines(keepends=True)
    linecache.cache[NAME] = (len(code), None, lines, NAME)
    try:
        exec(compile(code, NAME, "exec"), main.__dict__)  # noqa: S102 - behind the walls
    except SystemExit:
        raise
    except BaseException as error:
        inner = error.__traceback__.tb_next if error.__traceback__ is not None else None
        traceback.print_exception(error.with_traceback(inner))
        return 1
    return 0
