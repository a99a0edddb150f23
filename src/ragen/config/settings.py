"""The base of every settings class: frozen, typed, and strict about unknown keys."""

import re
import typing
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from ragen.config.allowed import allowed, of_type
from ragen.errors import ConfigError
from ragen.registry import MANY, at_most, nearest


class Settings(BaseModel):
    """Settings are plain values; they stop at constructors (law 5)."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """True would pass for 1: who writes it has a wrong idea of the setting."""
        kinds = list(_kinds(cls.model_fields[str(info.field_name)].annotation))
        if _holds_switch(value) and (int in kinds or float in kinds) and bool not in kinds:
            raise PydanticCustomError("no_switch", "it must be a number")
        return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    inside = typing.get_args(annotation)
    yield from (kind for part in inside for kind in _kinds(part)) if inside else (annotation,)


def _holds_switch(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, list | tuple) and any(map(_holds_switch, value)))


S = TypeVar("S", bound=Settings)


def validated(cls: type[S], values: Mapping[str, Any], prefix: str = "") -> S:
    """Build settings from plain values; a wrong one is a ConfigError that names key, value and what is allowed."""
    for key, value in values.items():
        if not _is_text(value):
            raise ConfigError(f"setting '{prefix}{key}' is {value!r:.60}: it holds bytes that are no UTF-8 text")
    try:
        return cls.model_validate(dict(values))  # unlike `cls(**values)`, lets a validator answer with a changed copy
    except ValidationError as error:
        problems = error.errors()
        lines = (_explain(cls, dict(problem), prefix) for problem in problems[:MANY])
        raise ConfigError("\n".join(at_most(lines, len(problems), "settings that are wrong"))) from None


def _is_text(value: Any) -> bool:
    """Whether all texts in a value can be written as UTF-8: wrong bytes on a command line come as lone surrogates."""
    if isinstance(value, Mapping):
        return all(_is_text(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return all(map(_is_text, value))
    return not isinstance(value, str) or not re.search("[\ud800-\udfff]", value)


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings by dotted name."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _explain(cls: type[BaseModel], problem: Mapping[str, Any], prefix: str) -> str:
    path = [str(part) for part in problem["loc"]]
    key = prefix + ".".join(path)
    if problem["type"] == "extra_forbidden":
        parent = _descend(cls, path[:-1])
        return f"unknown setting '{key}': {nearest(path[-1], list(parent.model_fields))}"
    if not path:
        return _message(problem)
    kind = problem["type"]
    if kind == "missing" and path[-1].isdigit():  # too short a list, which is what pydantic gives as the input
        path, key, kind = path[:-1], key.rpartition(".")[0], "too_short"
    field = _descend(cls, path[:-1]).model_fields.get(path[-1])
    about = f" ({field.description})" if field is not None and field.description else ""
    if kind == "missing":  # here the input is everything around it
        return f"setting '{key}' is missing{about}"
    return f"setting '{key}' is {_shown(problem['input'])}: {_message(problem, _takes(cls, path))}{about}"


def _message(problem: Mapping[str, Any], takes: str = "") -> str:
    """What is wrong: in a validator's own words, else by what the setting ``takes``, where that is known."""
    kind = problem["type"]
    if kind == "value_error" or not takes:
        return str(problem["msg"]).removeprefix("Value error, ")
    choices = re.findall(r"'([^']*)'", takes) if kind == "literal_error" else []
    close = get_close_matches(str(problem["input"]), choices, n=1)
    large = "too large; " if kind == "int_parsing_size" else ""
    alone = kind in ("tuple_type", "list_type") and isinstance(problem["input"], str | int | float)
    written = "; a list is written in brackets, as [a,b]" if alone else ""
    return f"{large}it must be {takes}{written}" + (f"; did you mean '{close[0]}'?" if close else "")


def _takes(cls: type[BaseModel], path: list[str]) -> str:
    """What the setting at ``path`` takes, which may be an item of a list; empty where there are no words for it."""
    field = _descend(cls, path[:-1]).model_fields.get(path[-1])
    if field is not None:
        return allowed(field)
    within = _descend(cls, path[:-2]).model_fields.get(path[-2]) if len(path) > 1 and path[-1].isdigit() else None
    items = typing.get_args(within.annotation) if within is not None else ()
    return of_type(items[min(int(path[-1]), len(items) - 1) if Ellipsis not in items else 0]) if items else ""


def _shown(value: Any) -> str:
    """A value as it is written in YAML, as far as Python writes it otherwise."""
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else repr(value)


def _descend(cls: type[BaseModel], path: list[str]) -> type[BaseModel]:
    for part in path:
        field = cls.model_fields.get(part)
        inner = field.annotation if field is not None else cls if part.isdigit() else None
        inner = next(iter(typing.get_args(inner)), inner)  # of a list of settings: one of them
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        cls = inner
    return cls
