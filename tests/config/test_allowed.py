"""What a setting takes, in RAGEN's own words."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from ragen.config import load_config
from ragen.config.allowed import allowed, of_type
from ragen.config.paths import fields
from ragen.config.settings import Settings, validated
from ragen.envs import environments
from ragen.errors import ConfigError


class Inner(Settings):
    """A section."""

    one: int = 1
    two: int = 2
    three: int = 3
    four: int = 4


class Sample(Settings):
    """One setting of each kind, each with a description to be found in messages."""

    count: int = Field(1, ge=1, le=9, description="how many")
    fixed: int = Field(1, ge=1, le=1)
    share: float = Field(0.5, gt=0, lt=1)
    weight: float = Field(0.5, gt=0.25)
    large: float = Field(1, le=1e6)
    maybe: float | None = Field(None, gt=1)
    switch: bool = False
    word: str = Field("a", min_length=1)
    either: Literal["left", "right", "straight"] = "left"
    size: Literal[4, 9] = 4
    words: tuple[str, ...] = ()
    pair: tuple[float, float] = (0.0, 1.0)
    pairs: tuple[tuple[str, str], ...] = Field((("a", "b"),), min_length=1)
    table: dict[str, Any] = Field({}, description="anything")
    inner: Inner = Inner()
    inners: tuple[Inner, ...] = ()
    strange: Annotated[complex, "no words"] = 1j


WORDS = {
    "count": "a whole number of at least 1 and at most 9",
    "fixed": "1",
    "share": "a number above 0 and below 1",
    "weight": "a number above 0.25",
    "large": "a number at most 1,000,000",
    "maybe": "a number above 1, or null",
    "switch": "true or false",
    "word": "a text that is not empty",
    "either": "'left', 'right' or 'straight'",
    "size": "4 or 9",
    "words": "a list of texts",
    "pair": "a list of 2 numbers",
    "pairs": "a list of items that are each a list of 2 texts that is not empty",
    "table": "a mapping {key: value}",
    "inner": "a mapping of settings {one: …, two: …, three: …, …}",
    "inners": "a list of mappings {one: …, two: …, three: …, …}",
    "strange": "",
}


@pytest.mark.parametrize("key", Sample.model_fields)
def test_type_and_bounds_are_told_in_words(key: str) -> None:
    assert allowed(Sample.model_fields[key]) == WORDS[key]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"count": "three"},
            "setting 'x.count' is 'three': it must be a whole number of at least 1 and at most 9 (how many)",
        ),
        ({"count": 10}, "setting 'x.count' is 10: it must be a whole number of at least 1 and at most 9 (how many)"),
        ({"count": None}, "setting 'x.count' is null: it must be a whole number"),
        ({"switch": "maybe"}, "setting 'x.switch' is 'maybe': it must be true or false"),
        ({"maybe": True}, "setting 'x.maybe' is true: it must be a number above 1, or null"),
        ({"count": True}, "setting 'x.count' is true: it must be a whole number of at least 1 and at most 9 (how many)"),
        ({"pair": [False, 1]}, "setting 'x.pair' is [False, 1]: it must be a list of 2 numbers"),
        ({"either": "lef"}, "setting 'x.either' is 'lef': it must be 'left', 'right' or 'straight'; did you mean 'left'?"),
        ({"size": 5}, "setting 'x.size' is 5: it must be 4 or 9"),
        ({"words": "a"}, "setting 'x.words' is 'a': it must be a list of texts; a list is written in brackets, as [a,b]"),
        ({"words": ["a", 3]}, "setting 'x.words.1' is 3: it must be a text"),
        ({"pair": [0.5]}, "setting 'x.pair' is [0.5]: it must be a list of 2 numbers"),
        ({"pair": [1, 2, 3]}, "setting 'x.pair' is [1, 2, 3]: it must be a list of 2 numbers"),
        ({"pair": [1, "b"]}, "setting 'x.pair.1' is 'b': it must be a number"),
        ({"pairs": [["a"]]}, "setting 'x.pairs.0"),
        ({"inner": 3}, "setting 'x.inner' is 3: it must be a mapping of settings {one: …"),
        ({"inner": {"two": "b"}}, "setting 'x.inner.two' is 'b': it must be a whole number"),
        ({"inners": [{"two": "b"}]}, "setting 'x.inners.0.two' is 'b': it must be a whole number"),
        ({"inners": [3]}, "setting 'x.inners.0' is 3: it must be a mapping of settings {one: …"),
        ({"table": 3}, "setting 'x.table' is 3: it must be a mapping {key: value} (anything)"),
    ],
)
def test_a_wrong_value_is_told_with_key_value_and_what_is_allowed(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        validated(Sample, values, prefix="x.")
    assert str(error.value).startswith(said)
    assert " should " not in str(error.value)


WRONG = [object(), {"a": 1}, [1], "nonsense", None, 1e300, -1e300, float("nan")]


def refusal(cls: type[Settings], values: dict[str, Any]) -> str:
    try:
        validated(cls, values)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("key", fields())
def test_no_setting_has_the_validators_wording(key: str) -> None:
    assert allowed(fields()[key])
    section, _, name = key.rpartition(".")
    cls = type(load_config({}))
    for part in filter(None, section.split(".")):
        cls = cls.model_fields[part].annotation
    said = list(filter(None, (refusal(cls, {name: value}) for value in WRONG)))
    assert said
    assert [text for text in said if " should " in text or "nput" in text.partition("(")[0]] == []


def test_every_setting_of_every_environment_has_words() -> None:
    for name in environments:
        for field in environments.get(name).cls.settings_class.model_fields.values():
            assert allowed(field)


def test_an_item_of_a_list_has_words() -> None:
    assert of_type(tuple[Literal["a", "b"], ...]) == "a list of items that are each 'a' or 'b'"
