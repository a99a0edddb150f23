"""Python programs that nobody vetted, run behind walls of the Linux kernel."""

from ragen.tools.sandbox.run import Limits, Result, check, python, run_python

__all__ = ["Limits", "Result", "check", "python", "run_python"]
