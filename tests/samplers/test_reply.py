"""What each form of an answer means (the table of ragen.samplers.reply)."""

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.endpoint_server import completion

from ragen.episode import StopReason
from ragen.samplers.chat import Usage
from ragen.samplers.endpoint import Endpoint
from ragen.samplers.reply import NoReply, read_reply, read_usage
from ragen.text.parser import parse_reply

ENDPOINT = Endpoint("http://127.0.0.1:9/v1", price_in=1.0, price_out=2.0)
GOOD = "<think>a</think><answer>Up</answer>"


def read(content, finish="stop", *, thinking=True, stops=(), **message):
    return read_reply(completion(content, finish, **message).body, thinking=thinking, stops=stops)


@pytest.mark.parametrize("finish", ["stop", "eos", "end_turn", None, "tool_calls"])
def test_text_is_a_reply_whatever_the_server_calls_its_end(finish):
    reply = read(GOOD, finish)
    assert (reply.completion.text, reply.completion.stop, reply.notes) == (GOOD, StopReason.END, ())
    assert reply.completion.token_ids == ()
    assert reply.completion.length == 5


def test_an_unknown_finish_reason_is_an_end_and_is_noted():
    assert read(GOOD, "done!").notes == ("finish reason 'done!'",)


def test_a17_a_reply_cut_at_the_limit_is_told_from_an_invalid_one():
    reply = read("<think>a</think><answer>Ri", "length")
    assert (reply.completion.stop, reply.notes) == (StopReason.LENGTH, ("cut",))
    assert read(None, "length").completion.text == ""


@pytest.mark.parametrize(
    "given",
    [
        completion(None),
        completion(None, "tool_calls", tool_calls=[{"id": "1"}]),
        completion("", "tool_calls", tool_calls=[{"id": "1"}]),
        completion(GOOD, "content_filter"),
        completion(GOOD, "abort"),
        completion(7),
    ],
)
def test_f10_what_is_no_answer_of_the_model_is_no_reply(given):
    with pytest.raises(NoReply):
        read_reply(given.body, thinking=True, stops=())


@pytest.mark.parametrize(
    "body", [None, [], "x", {}, {"choices": []}, {"choices": None}, {"choices": ["x"]}, {"choices": [{}]}, {"error": "busy"}]
)
def test_f10_answers_without_a_choice_are_no_reply(body):
    with pytest.raises(NoReply):
        read_reply(body, thinking=True, stops=())


def test_a_refusal_and_an_empty_text_are_replies_without_an_answer():
    refused = read(None, refusal="I cannot do that.")
    assert (refused.completion.text, refused.notes) == ("I cannot do that.", ("refusal",))
    empty = read("")
    assert (empty.completion.text, empty.notes) == ("", ("empty",))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_told_apart_is_the_thinking_of_the_reply(name):
    reply = read("<answer>Up</answer>", **{name: "go </think> up"})
    assert reply.completion.text == "<think>go  up</think><answer>Up</answer>"
    assert parse_reply(reply.completion.text, thinking=True).actions == ("Up",)
    assert reply.notes == ("reasoning apart",)
    assert read("<answer>Up</answer>", thinking=False, **{name: "x"}).completion.text == "<answer>Up</answer>"
    assert read(GOOD, **{name: "other"}).completion.text == GOOD  # it closes a thinking of its own
    spent = read(None, "length", **{name: "and so on"})
    assert spent.completion.text == "<think>and so on"
    assert parse_reply(spent.completion.text, thinking=True).answer is None
    assert read(None, **{name: "hm"}).completion.text == "<think>hm</think>"


def test_content_in_parts_is_one_text():
    assert read([{"type": "text", "text": "<think>a</think>"}, {"type": "text", "text": "b"}]).completion.text == (
        "<think>a</think>b"
    )


def test_a_stop_string_stays_at_the_end_as_a_local_sampler_leaves_it():
    reply = read("a</answer>Observation: you won", stops=("won", "</answer>"))
    assert (reply.completion.text, reply.completion.stop) == ("a</answer>", StopReason.STOP_STRING)


def test_a25_the_opener_may_be_there_or_not():
    for text in (
        "<think>a</think><answer>Up</answer>",
        "a</think><answer>Up</answer>",
        "\n<think>a</think><answer>Up</answer>",
    ):
        parsed = parse_reply(read(text).completion.text, thinking=True)
        assert (parsed.thought, parsed.actions) == ("a", ("Up",))


def test_usage_as_told_and_where_it_is_not():
    told = {
        "prompt_tokens": 9,
        "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert read_usage({"usage": told}) == Usage(prompt_tokens=9, cached_tokens=4, completion_tokens=7, reasoning_tokens=3)
    assert read_usage({}) == Usage(untold=1)
    assert read_usage({"usage": {"prompt_tokens": 9}}) == Usage(prompt_tokens=9, untold=1)
    assert read_usage({"usage": {**told, "prompt_tokens_details": None, "completion_tokens_details": [3]}}) == Usage(
        prompt_tokens=9, completion_tokens=7
    )


@pytest.mark.parametrize("count", ["many", "7", -1, 10**12 + 1, 10**400, math.nan, math.inf, 1.5, True, None, [7], {}])
def test_what_cannot_be_a_number_of_tokens_is_told_as_none(count):
    """10^400 tokens ended an evaluation with prices in an OverflowError; others counted as 0 without a word."""
    for name in ("prompt_tokens", "completion_tokens"):
        told = read_usage({"usage": {"prompt_tokens": 9, "completion_tokens": 7, name: count}})
        assert told == Usage(**({"prompt_tokens": 9, "completion_tokens": 7} | {name: 0}), untold=1)
        assert ENDPOINT.cost(told.prompt_tokens, told.completion_tokens) <= 2e-5
    details = {"prompt_tokens_details": {"cached_tokens": count}, "completion_tokens_details": {"reasoning_tokens": count}}
    assert read_usage({"usage": {"prompt_tokens": 10**12, "completion_tokens": 0, **details}}) == Usage(prompt_tokens=10**12)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(choice=st.fixed_dictionaries({"message": JSON, "finish_reason": JSON}) | JSON, usage=JSON)
def test_a27_any_json_is_a_reply_or_none(choice, usage):
    body = json.loads(json.dumps({"choices": [choice], "usage": usage}))
    read_usage(body)
    with suppress(NoReply):
        assert isinstance(read_reply(body, thinking=True, stops=("x",)).completion.text, str)
