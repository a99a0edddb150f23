"""What a setting takes, in words: out of its type and its bounds, as the schema declares them."""

import typing
from collections.abc import Sequence
from typing import Any

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ragen.registry import FEW
from ragen.wording import either

_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "a mapping {key: value}",
    type(None): "null",
}
_MANY = {int: "whole numbers", float: "numbers", bool: "true or false", str: "texts"}
_BOUNDS = {Ge: ("ge", "of at least"), Gt: ("gt", "above"), Le: ("le", "at most"), Lt: ("lt", "below")}


def allowed(field: FieldInfo) -> str:
    """What ``field`` takes; empty for a type that has no words here.

    >>> from ragen.config.paths import fields
    >>> [allowed(fields()[key]) for key in ("run.threads", "loss.clip_low")]
    ['a whole number of at least 0 and at most 1,024', 'a number above 0 and below 1']
    >>> allowed(fields()["loss.dual_clip"])
    'a number above 1 and at most 1,000,000, or null'
    """
    return of_type(field.annotation, field.metadata)


def of_type(annotation: Any, metadata: Sequence[Any] = ()) -> str:
    """The same for an annotation with its constraints."""
    origin, inside = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return either([repr(choice) for choice in inside])
    if origin is tuple:
        return _list(inside, metadata)
    if inside and origin is not dict:  # a union
        parts = [of_type(kind, metadata if kind is not type(None) else ()) for kind in inside]
        return ", or ".join(parts) if all(parts) else ""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"a mapping of settings {_keys(annotation)}"
    return _bounded(_KINDS.get(origin or annotation, ""), metadata)


def _bounded(kind: str, metadata: Sequence[Any]) -> str:
    """``kind`` with its bounds; the number alone where they leave one."""
    limits = {name: getattr(each, name) for each in metadata for cls, (name, _) in _BOUNDS.items() if isinstance(each, cls)}
    if "ge" in limits and limits["ge"] == limits.get("le"):
        return _plain(limits["ge"])
    told = [f"{words} {_plain(limits[name])}" for name, words in _BOUNDS.values() if name in limits]
    told += ["that is not empty" for each in metadata if isinstance(each, MinLen)]
    return f"{kind} {' and '.join(told)}" if kind and told else kind


def _plain(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else f"{number:g}"


def _list(inside: Sequence[Any], metadata: Sequence[Any]) -> str:
    """A list in words: of so many items, or of any number of one kind."""
    kind = inside[0] if inside else str
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        items = f"mappings {_keys(kind)}"
    else:
        items = _MANY.get(kind, "") or f"items that are each {of_type(kind)}"
    if inside and inside[-1] is not Ellipsis:
        return f"a list of {len(inside)} {items}"
    return _bounded(f"a list of {items}", metadata)


def _keys(section: type[BaseModel]) -> str:
    names = list(section.model_fields)
    return f"{{{', '.join(f'{name}: …' for name in names[:FEW])}{', …' if len(names) > FEW else ''}}}"
