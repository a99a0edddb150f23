"""No setting is so large that it eats the machine or overflows float32: every number has its bounds."""

import itertools
import math
import typing
from typing import Any

import pytest
import torch
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

from ragen.config import load_config
from ragen.config.bounds import COUNT
from ragen.config.collection import StageConfig
from ragen.config.paths import fields
from ragen.errors import ConfigError

PRESET = "bandit-starpo-s-grpo"
HUGE = (2**31, 2**63, 10**23, 10**400)


def _kinds(field: FieldInfo) -> set[Any]:
    return {field.annotation, *typing.get_args(field.annotation)}


def _numbers() -> dict[str, FieldInfo]:
    every = {**fields(), **{f"curriculum.stages.{name}": field for name, field in StageConfig.model_fields.items()}}
    return {key: field for key, field in every.items() if _kinds(field) & {int, float} and key != "optim.betas"}


def _limits(field: FieldInfo, *kinds: type) -> list[float]:
    return [getattr(each, kind.__name__.lower()) for each in field.metadata for kind in kinds if isinstance(each, kind)]


def _pairs() -> list[tuple[str, int]]:
    whole = [key for key, field in _numbers().items() if int in _kinds(field) and not key.startswith("curriculum.stages")]
    return [(key, value) for key, value in itertools.product(whole, HUGE) if value > _limits(_numbers()[key], Le)[0]]


@pytest.mark.parametrize("key", _numbers())
def test_every_number_is_bounded_above_and_below_and_a_default_is_within(key: str) -> None:
    field = _numbers()[key]
    low, high = _limits(field, Ge, Gt), _limits(field, Le, Lt)
    assert low, f"{key} has no lower bound"
    assert high, f"{key} has no upper bound"
    if isinstance(field.default, int | float):
        assert low[0] <= field.default <= high[0]
    if float in _kinds(field):
        products = torch.tensor([high[0], low[0]], dtype=torch.float32) ** 2  # a coefficient times a learning rate, …
        assert bool(torch.isfinite(products).all())


@pytest.mark.parametrize(("key", "value"), _pairs())
def test_a_huge_count_is_refused_with_the_largest_that_is_allowed(key: str, value: int) -> None:
    with pytest.raises(ConfigError, match=f"'{key}' is .*(at most|must be)"):
        load_config(PRESET, {key: value})


@pytest.mark.parametrize(
    "key", [key for key, field in _numbers().items() if float in _kinds(field) and ".stages." not in key]
)
def test_a_float_at_the_end_of_its_range_is_refused(key: str) -> None:
    for value in (1e308, -1e308, math.inf):
        with pytest.raises(ConfigError, match=key):
            load_config(PRESET, {key: value})


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rollout.groups", "rollout.members"),
        ("eval.episodes", "eval.samples"),
        ("warmup.demonstrations", "warmup.epochs"),
    ],
)
def test_two_counts_that_multiply_are_bounded_together(one: str, other: str) -> None:
    assert load_config(PRESET, {one: COUNT // 1000, other: 1000})
    with pytest.raises(ConfigError, match=f"{one} 1001 · {other} 1000 are 1,001,000 .* 1,000,000: lower one") as error:
        load_config(PRESET, {one: COUNT // 1000 + 1, other: 1000})
    assert "contradict" not in str(error.value)
