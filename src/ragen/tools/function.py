"""A typed Python function as a tool: its name, what it is for, and the JSON schema of its arguments."""

import inspect
import json
import re
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, TypeAdapter, ValidationError, create_model

from ragen.errors import ConfigError, RagenError
from ragen.registry import nearest
from ragen.tools.call import FINAL, Call, CallError

NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,63}")
STUCK = 4  # calls of one tool that were given up and still run, at most


class ToolError(Exception):
    """A tool cannot answer; the message is told to the agent as it is."""


class ToolFailure(ToolError):
    """A tool's own code raised something else, its cause: the agent is told of it, and its author has to mend it."""


class Tool:
    """A function that an agent may call.

    Args:
        function: typed parameters (by name), a docstring whose first line says what it is for, with a section ``Args:`` for
            what the parameters mean. It returns a text; anything else is told as JSON.
        timeout_s: seconds a call may take; None = no limit. A call that takes longer is given up (its thread cannot be
            ended: a function that can hang for good belongs into a process of its own).

    Raises:
        ConfigError: the function has no docstring, or one that tells of a parameter it has not; a parameter has no type, one
            that JSON has not, or cannot be named; the function is a coroutine or a generator; ``timeout_s`` is no time.
    """

    def __init__(self, function: Callable[..., Any], *, timeout_s: float | None = None) -> None:
        self.name = getattr(function, "__name__", "")
        if not NAME.fullmatch(self.name) or self.name == FINAL:
            raise ConfigError(f"a tool cannot be called {self.name!r}: use letters, digits and _, and not '{FINAL}'")
        self.description, notes = _documentation(function)
        if not self.description:
            raise ConfigError(f"the tool '{self.name}' needs a docstring: its first line tells the agent what it is for")
        if inspect.iscoroutinefunction(function):
            raise ConfigError(f"the tool '{self.name}' is a coroutine function: write it without async")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise ConfigError(f"the tool '{self.name}' is a generator function: return the whole answer instead of yielding")
        if timeout_s is not None and not _is_time(timeout_s):
            raise ConfigError(
                f"the tool '{self.name}' has timeout_s {timeout_s!r}: give seconds above 0, at most "
                f"{threading.TIMEOUT_MAX:.0f}, or None for no limit"
            )
        self._function, self._timeout = function, timeout_s
        self._model = _arguments_model(self.name, function, notes)
        self._fields = {str(field.alias): key for key, field in self._model.model_fields.items()}  # by parameter
        self._stuck: list[threading.Thread] = []

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        schema = _without_titles(self._model.model_json_schema())
        schema.pop("additionalProperties", None)
        return {"type": "object", "properties": {}, **schema}

    @cached_property
    def schema(self) -> dict[str, Any]:
        """What chat templates take as a tool."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    @cached_property
    def summary(self) -> str:
        """The tool on one line: ``name(argument: type = default): what it is for argument: what it means``."""
        schema = self.parameters
        shown, notes = [], []
        for name, field in schema["properties"].items():
            default = "" if name in self.required else f" = {json.dumps(field.get('default'), ensure_ascii=False)}"
            shown.append(f"{name}: {field.get('type', 'value')}{default}")
            if field.get("description"):
                notes.append(f" {name}: {field['description']}")
        return f"{self.name}({', '.join(shown)}): {self.description}{';'.join(notes)}"

    @property
    def required(self) -> list[str]:
        """The arguments that a call must give, in order."""
        return list(self.parameters.get("required", []))

    @property
    def sole(self) -> str | None:
        """The argument that a text alone means: the only one, or the only one without a default."""
        alone = self.required or list(self._fields)
        return alone[0] if len(alone) == 1 else None

    def typed(self, text: str) -> str:
        """The call that a person means who types this behind the tool's name: JSON, or the text of ``sole`` alone."""
        if not text or text.startswith("{") or self.sole is None:
            return f'{{"name": {json.dumps(self.name)}, "arguments": {text or "{}"}}}'
        value: Any = text
        if self.parameters["properties"][self.sole].get("type") != "string":
            with suppress(ValueError, RecursionError):
                value = json.loads(text)
        return str(Call(self.name, {self.sole: value}))

    def canonical(self, arguments: Mapping[str, Any]) -> Call:
        """The call with its arguments checked and in order; CallError says which one is missing, unknown or wrong."""
        return Call(self.name, self._checked(arguments).model_dump(mode="json", exclude_unset=True, by_alias=True))

    def __call__(self, arguments: Mapping[str, Any]) -> str:
        """The answer, as text.

        Raises:
            CallError: the arguments are wrong (see ``canonical``).
            ToolError: the function failed (whatever else it raised, as ToolFailure), or took too long; the message is for
                the agent.
            RagenError: the function raised it (no sandbox could be built): no doing of the agent's, so it is not told of it.
        """
        checked = self._checked(arguments)
        values = {name: getattr(checked, field) for name, field in self._fields.items()}
        try:
            answer = self._function(**values) if self._timeout is None else self._within(self._timeout, values)
            return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=str)
        except (ToolError, RagenError):
            raise
        except TimeoutError as error:
            raise ToolError(f"{self.name} took too long{f': {error}' if str(error) else ''}") from None
        except (Exception, SystemExit) as error:
            raise ToolFailure(f"{type(error).__name__}: {error}") from error

    def _checked(self, arguments: Mapping[str, Any]) -> BaseModel:
        try:
            return self._model.model_validate_json(json.dumps(arguments), strict=True)
        except ValidationError as error:
            told = "; ".join(_problem(dict(problem), list(self._fields)) for problem in error.errors()[:3])
            raise CallError(f"{self.name}: {told}") from None

    def _within(self, seconds: float, values: Mapping[str, Any]) -> Any:
        """The function's result, or TimeoutError after so many seconds."""
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        if len(self._stuck) >= STUCK:
            raise TimeoutError(f"{STUCK} earlier calls still run")
        outcome: dict[str, Any] = {}

        def work() -> None:
            try:
                outcome["answer"] = self._function(**values)
            except BaseException as error:  # raised where the call was made, whatever it is
                outcome["error"] = error

        thread = threading.Thread(target=work, name=f"tool {self.name}", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            self._stuck.append(thread)
            raise TimeoutError(f"no answer within {seconds:g} s")
        if "error" in outcome:
            raise outcome["error"]
        return outcome.get("answer")


@overload
def tool(function: Callable[..., Any], *, timeout_s: float | None = None) -> Tool: ...


@overload
def tool(*, timeout_s: float | None = None) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(
    function: Callable[..., Any] | None = None, *, timeout_s: float | None = None
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Decorator that makes a typed function a ``Tool`` (with or without arguments); see there for what it must have."""
    if function is not None:
        return Tool(function, timeout_s=timeout_s)
    return lambda wrapped: Tool(wrapped, timeout_s=timeout_s)


def _arguments_model(name: str, function: Callable[..., Any], notes: Mapping[str, str]) -> type[BaseModel]:
    """The arguments as a pydantic model that takes nothing else."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception as error:  # a type written as text is evaluated, and may raise anything
        raise ConfigError(f"the tool '{name}' has a type that is not found: {error}") from None
    known = inspect.signature(function).parameters
    if unknown := next((each for each in notes if each not in known), None):
        hint = nearest(unknown, list(known)) if known else "it has no parameters"
        raise ConfigError(f"the tool '{name}' tells of '{unknown}' under Args:, which is no parameter of it: {hint}")
    fields: dict[str, Any] = {}
    for parameter in known.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"the tool '{name}' has the parameter '{parameter}', which a call cannot name: give it a name")
        if parameter.name == "self" and "self" not in hints:
            raise ConfigError(
                f"the tool '{name}' is decorated inside its class, where there is no object yet: leave the decorator out "
                f"and make it a tool in __init__, tool(self.{name})"
            )
        if parameter.name not in hints or parameter.name.startswith("_"):
            raise ConfigError(f"the tool '{name}' needs a type for its parameter '{parameter.name}', and no leading _")
        default = ... if parameter.default is parameter.empty else parameter.default
        field = Field(default, alias=parameter.name, description=notes.get(parameter.name))
        fields[f"argument_{len(fields)}"] = (hints[parameter.name], field)  # its own name may be one of pydantic's own
    for each in known:
        _check_type(name, each, hints[each])
    return create_model(name, __config__=ConfigDict(extra="forbid", allow_inf_nan=False), **fields)


def _check_type(name: str, parameter: str, hint: Any) -> None:
    """ConfigError where no JSON value can be of a parameter's type; some types can be checked and have no schema."""
    try:
        TypeAdapter(hint).json_schema()
    except PydanticUserError:
        raise ConfigError(
            f"the tool '{name}' has the parameter '{parameter}' of type {inspect.formatannotation(hint)}, which no JSON "
            "value can be: take str, int, float, bool, list, dict or Literal"
        ) from None


def _is_time(seconds: object) -> bool:
    """Whether a thread can be waited for so long."""
    return isinstance(seconds, int | float) and 0 < seconds <= threading.TIMEOUT_MAX


def _documentation(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The first line of the docstring, and what its section ``Args:`` says of each parameter."""
    lines = (inspect.getdoc(function) or "").splitlines()
    notes: dict[str, str] = {}
    section = lines[lines.index("Args:") + 1 :] if "Args:" in lines else []
    current, indent = "", " {1,4}"  # the first parameter's: what stands further in goes on
    for line in section:
        if line.strip() and not line.startswith(" "):
            break
        begun = re.match(rf"({indent})(\w+)(?: \([^)]*\))?: *(.*)", line)
        if begun:
            indent, current = begun[1], begun[2]
            notes[current] = begun[3].strip()
        elif current and line.strip():
            notes[current] = f"{notes[current]} {line.strip()}"
    return (lines[0].strip() if lines else ""), notes


def _without_titles(schema: Any) -> Any:
    """A JSON schema without pydantic's titles (a property may be called so)."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(item) for name, item in value.items()} if key == "properties" else _without_titles(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }


def _problem(problem: Mapping[str, Any], known: list[str]) -> str:
    """What is wrong with one argument, in words."""
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f'the argument "{key}" is missing'
    if problem["type"] == "extra_forbidden":
        return f'there is no argument "{key[:60]}" (arguments: {", ".join(known) or "none"})'
    return f'the argument "{key[:60]}" is wrong: {problem["msg"]}'
