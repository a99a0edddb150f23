"""Tools: functions an agent may call, with typed arguments and bounded answers."""

from ragen.tools.function import Tool, ToolError, tool

__all__ = ["Tool", "ToolError", "tool"]
