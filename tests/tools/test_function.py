"""A typed function becomes a tool; what is wrong with a call is told argument by argument."""

import math
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from ragen.errors import ConfigError, SandboxError
from ragen.tools import Tool, ToolError, tool
from ragen.tools.call import Call, CallError, read_call


@tool
def book(day: Literal["Mon", "Tue"], seats: int = 1, *, title: str | None = None) -> str:
    """Book seats for a day.

    More words that are not for the agent.

    Args:
        day: the day
            of the week
        seats (int): how many
    """
    return f"{day} {seats} {title}"


class Shop:
    def __init__(self, stock: int) -> None:
        self.stock = stock

    def left(self) -> int:
        """How many are left."""
        return self.stock


def test_name_description_and_schema_are_the_functions_own():
    assert (book.name, book.description) == ("book", "Book seats for a day.")
    assert book.schema == {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Book seats for a day.",
            "parameters": {
                "type": "object",
                "properties": {
                    "day": {"description": "the day of the week", "enum": ["Mon", "Tue"], "type": "string"},
                    "seats": {"default": 1, "description": "how many", "type": "integer"},
                    "title": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
                },
                "required": ["day"],
            },
        },
    }
    assert book.summary == (
        "book(day: string, seats: integer = 1, title: value = null): Book seats for a day. day: the day of the week; seats: "
        "how many"
    )


def test_a_parameter_may_be_called_title():
    @tool
    def find(title: str) -> str:
        """Find a title."""
        return title

    assert list(find.parameters["properties"]) == ["title"]
    assert find.parameters["properties"]["title"] == {"type": "string"}


@pytest.mark.parametrize("name", ["json", "copy", "schema", "model_config", "model_dump", "model_fields", "argument_1"])
def test_a_parameter_may_be_called_as_the_checking_calls_its_own_parts(name):
    space: dict = {}
    exec(f"def send(to: str, {name}: int = 1) -> str:\n    'Send it.'\n    return f'{{to}} {{{name}}}'", space)
    send = tool(space["send"])
    assert list(send.parameters["properties"]) == ["to", name]
    assert send.canonical({name: 2, "to": "x"}) == Call("send", {"to": "x", name: 2})
    assert [send({"to": "x"}), send({"to": "x", name: 2})] == ["x 1", "x 2"]
    with pytest.raises(CallError, match=f'the argument "{name}" is wrong'):
        send.canonical({"to": "x", name: "y"})


def test_arguments_are_checked_ordered_and_given_to_the_function():
    assert str(book.canonical({"seats": 2, "day": "Mon"})) == str(Call("book", {"day": "Mon", "seats": 2}))
    assert book.canonical({"day": "Mon"}).arguments == {"day": "Mon"}
    assert book({"day": "Tue", "title": "x"}) == "Tue 1 x"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, 'the argument "day" is missing'),
        ({"day": "Sun"}, 'the argument "day" is wrong'),
        ({"day": "Mon", "seats": "2"}, 'the argument "seats" is wrong: Input should be a valid integer'),
        ({"day": "Mon", "seats": 2.5}, 'the argument "seats" is wrong'),
        ({"day": "Mon", "seats": True}, 'the argument "seats" is wrong'),
        ({"day": "Mon", "seat": 2}, r'there is no argument "seat" \(arguments: day, seats, title\)'),
        ({"day": ["Mon"]}, 'the argument "day" is wrong'),
    ],
)
def test_wrong_missing_and_unknown_arguments_are_named(arguments, why):
    with pytest.raises(CallError, match=why):
        book.canonical(arguments)


def test_many_mistakes_are_told_in_a_few_words():
    with pytest.raises(CallError) as caught:
        book.canonical({"day": "Mon", **{f"{'x' * 1000}{i}": 1 for i in range(100)}})
    assert len(str(caught.value)) < 600


def test_a_method_is_a_tool_and_other_answers_become_json():
    assert Tool(Shop(3).left)({}) == "3"


def test_what_a_function_raises_is_told_with_its_kind_and_a_tool_error_as_it_is():
    @tool
    def fail(how: str) -> str:
        """Fail."""
        errors = {
            "key": KeyError("k"),
            "tool": ToolError("closed today"),
            "time": TimeoutError("clock"),
            "exit": SystemExit(3),
        }
        raise errors[how]

    told_of = {
        "key": "^KeyError: 'k'$",
        "tool": "^closed today$",
        "time": "^fail took too long: clock$",
        "exit": "^SystemExit: 3$",
    }
    for how, told in told_of.items():
        with pytest.raises(ToolError, match=told):
            fail({"how": how})


@pytest.mark.parametrize("timeout_s", [None, 60])
def test_f6_what_is_no_doing_of_the_agents_is_not_told_to_it(timeout_s):
    def program(code: str) -> str:
        """Run it."""
        raise SandboxError("no user namespaces")

    with pytest.raises(SandboxError, match=r"^no user namespaces$"):
        Tool(program, timeout_s=timeout_s)({"code": "1"})


def test_a_methods_time_limit_holds_as_a_decorated_functions_does():
    gate = threading.Event()

    class Slow:
        def wait(self) -> str:
            """Wait."""
            gate.wait(60)
            return "done"

    waiting = tool(Slow().wait, timeout_s=0.05)
    with pytest.raises(ToolError, match=r"no answer within 0\.05 s"):
        waiting({})
    gate.set()


def test_a_method_decorated_in_its_class_is_told_where_to_make_it_a_tool():
    def look(self, where: str) -> str:
        """Look."""
        return where

    with pytest.raises(
        ConfigError, match=r"the tool 'look' is decorated inside its class.* in __init__, tool\(self\.look\)"
    ):
        tool(look)


def test_a_call_that_takes_too_long_is_given_up_and_few_are_left_running():
    gate = threading.Event()

    @tool(timeout_s=0.05)
    def wait(quick: bool) -> str:
        """Wait."""
        if not quick:
            gate.wait(60)
        return "done"

    assert wait({"quick": True}) == "done"
    for _ in range(4):
        with pytest.raises(ToolError, match=r"wait took too long: no answer within 0\.05 s"):
            wait({"quick": False})
    with pytest.raises(ToolError, match="4 earlier calls still run"):
        wait({"quick": True})
    gate.set()
    for thread in threading.enumerate():
        if thread.name == "tool wait":
            thread.join()
    assert wait({"quick": True}) == "done"


def test_an_answer_that_is_no_json_is_an_error_too():
    @tool
    def loop() -> list:
        """Loop."""
        found: list = []
        found.append(found)
        return found

    with pytest.raises(ToolError, match="ValueError"):
        loop({})


def test_a_function_with_a_timeout_raises_as_without_one():
    @tool(timeout_s=5)
    def fail() -> str:
        """Fail."""
        raise ToolError("closed")

    with pytest.raises(ToolError, match=r"^closed$"):
        fail({})

    @tool(timeout_s=5)
    def leave() -> str:
        """Leave."""
        raise SystemExit(3)

    with pytest.raises(ToolError, match="SystemExit: 3"):
        leave({})

    @tool(timeout_s=5)
    def stop() -> str:
        """Stop."""
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop({})


def answer() -> str:
    """A reserved name."""
    return ""


def silent() -> str:
    return ""


def untyped(x) -> str:
    """No type."""
    return x


def positional(x: int, /) -> str:
    """Not to be named."""
    return str(x)


async def later(x: int) -> str:
    """Not at once."""
    return str(x)


def unheard(x: "Nowhere") -> str:  # noqa: F821
    """A type that is not there."""
    return str(x)


def unsendable(x: Shop) -> str:
    """A type that JSON has not."""
    return str(x)


def uncallable(x: Callable[[int], int]) -> str:
    """A type that can be checked and has no JSON."""
    return str(x)


def misspelt(x: "threading.Nothing") -> str:
    """A type that its module has not."""
    return str(x)


def bit_by_bit(x: int) -> Iterator[int]:
    """Not at once."""
    yield x


def several(*x: int) -> str:
    """Not to be named."""
    return str(x)


@pytest.mark.parametrize(
    "function",
    [
        *(answer, silent, untyped, positional, later, unheard, unsendable, several, lambda: ""),
        *(uncallable, misspelt, bit_by_bit),
    ],
)
def test_what_cannot_be_a_tool_is_refused_with_its_name(function):
    with pytest.raises(ConfigError, match=r"the tool '|a tool cannot be called"):
        tool(function)


def test_lines_further_in_go_on_with_a_parameters_note():
    def move(how: str) -> str:
        """Move.

        Args:
          how: one of
            fast: at once
            slow: later
        """
        return how

    assert tool(move).parameters["properties"]["how"]["description"] == "one of fast: at once slow: later"


def test_a_note_on_no_parameter_is_refused_with_the_nearest_one():
    def look(side: str) -> str:
        """Look.

        Args:
            sdie: which side
        """
        return side

    def ring() -> str:
        """Ring.

        Args:
            bell: which one
        """
        return "ding"

    with pytest.raises(ConfigError, match=r"'look' tells of 'sdie' under Args:.*: did you mean 'side'\?"):
        tool(look)
    with pytest.raises(ConfigError, match=r"'ring' tells of 'bell' under Args:.*: it has no parameters"):
        tool(ring)


@pytest.mark.parametrize(("function", "kind"), [(unsendable, "Shop"), (uncallable, r"Callable\[\[int\], int\]")])
def test_a_type_that_json_has_not_is_told_with_its_parameter_and_without_the_checkers_own_words(function, kind):
    with pytest.raises(
        ConfigError, match=rf"has the parameter 'x' of type \S*{kind}, which no JSON .* take str, int"
    ) as caught:
        tool(function)
    assert "arbitrary_types" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize("seconds", [0, -1, math.inf, math.nan, 1e10, "2"])
def test_a_time_limit_that_is_no_time_is_refused(seconds):
    with pytest.raises(ConfigError, match=r"the tool 'book' has timeout_s .*: give seconds above 0"):
        Tool(book._function, timeout_s=seconds)


def test_a_number_too_large_for_a_float_never_reaches_the_function():
    @tool
    def half(number: float) -> float:
        """Halve it."""
        return number / 2

    with pytest.raises(CallError, match="finite"):
        half.canonical(read_call(f'{{"name": "half", "arguments": {{"number": 1{"0" * 400}}}}}').arguments)


def test_what_a_person_types_becomes_a_call():
    @tool
    def say(text: str) -> str:
        """Say."""
        return text

    assert say.typed('a "b"') == str(Call("say", {"text": 'a "b"'}))
    assert say.typed('{"text": "x"}') == '{"name": "say", "arguments": {"text": "x"}}'

    @tool
    def double(number: int) -> int:
        """Double it."""
        return 2 * number

    assert double.typed("5") == str(Call("double", {"number": 5}))
    assert double(read_call(double.typed("21")).arguments) == "42"
    assert double.typed("five") == str(Call("double", {"number": "five"}))  # the call's answer tells what is wrong
    assert book.typed("") == '{"name": "book", "arguments": {}}'
