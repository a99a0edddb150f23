"""The sampler over an endpoint that misbehaves in every way: bounded tries, defined ends, no key anywhere."""

import asyncio
import threading
import time
import traceback
from email.utils import formatdate

import pytest
from tests.endpoint_server import Answer, completion, refusal, serving

from ragen.errors import ConfigError
from ragen.samplers import api
from ragen.samplers.api import ApiSampler
from ragen.samplers.chat import ChatRequest, ContextOverflow, EndpointFailure, Message, Usage
from ragen.samplers.endpoint import Endpoint, Redactor

pytest.importorskip("openai")
GOOD = completion("<think>a</think><answer>Up</answer>")
CANARY = "sk-CANARY-0123456789"


@pytest.fixture(autouse=True)
def quick_and_keyless(monkeypatch):
    monkeypatch.setattr(api, "FIRST_WAIT", 0.001)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(url, usage=None, **settings):
    seed = settings.pop("seed", 7)
    request = ChatRequest((Message("user", "go \ud800"),), seed, 50, 0.5)

    async def once():
        sampler = ApiSampler(Endpoint(url, **settings), "m")
        try:
            return await sampler.reply(request, Usage() if usage is None else usage)
        finally:
            await sampler.close()

    return asyncio.run(once())


def test_a_request_says_what_is_asked_and_the_reply_is_its_text():
    with serving(GOOD) as endpoint:
        reply = ask(endpoint.url, body={"top_p": 0.9, "temperature": None})
    assert reply.completion.text == "<think>a</think><answer>Up</answer>"
    assert endpoint.requests == [
        {"model": "m", "messages": [{"role": "user", "content": "go ?"}], "seed": 7, "max_tokens": 50, "top_p": 0.9}
    ]


def test_f10_busy_then_well_is_a_reply_with_its_tries_counted():
    usage = Usage()
    busy = refusal(429, "slow down", retry_after="0.05")
    began = time.monotonic()
    with serving([busy, busy, busy, GOOD]) as endpoint:
        assert ask(endpoint.url, usage).completion.text
    assert (usage.requests, usage.retries, len(endpoint.requests)) == (4, 3, 4)
    assert time.monotonic() - began >= 0.15  # Retry-After is kept, though the back-off alone would be shorter
    assert (usage.prompt_tokens, usage.completion_tokens) == (10, 5)


@pytest.mark.parametrize(
    "bad",
    [
        refusal(500, "oops"),
        refusal(503, "busy"),
        refusal(408, "late"),
        Answer("<html>bad gateway</html>", 502),
        Answer('{"choices": [{"mess', 200),
        Answer(GOOD.body, cut=20),
        Answer("", cut=0, status=200),
        Answer({"choices": []}),
        Answer({"error": {"message": "upstream"}}),
        completion(None),
        completion(None, "tool_calls", tool_calls=[{"id": "1"}]),
        completion("x", "content_filter"),
    ],
)
def test_f10_every_fault_is_tried_again_and_then_a_counted_failure(bad):
    usage = Usage()
    with serving([bad, GOOD]) as endpoint:
        assert ask(endpoint.url, usage).completion.text
    assert usage.retries == 1
    with serving(bad) as endpoint, pytest.raises(EndpointFailure, match="no reply after 3 requests"):
        ask(endpoint.url, retries=2)
    assert len(endpoint.requests) == 3


def test_f10_a_stall_ends_at_the_timeout_also_where_bytes_keep_dripping():
    with serving([Answer(GOOD.body, stall=5.0), GOOD]) as endpoint:
        usage = Usage()
        assert ask(endpoint.url, usage, timeout=0.3).completion.text
        assert usage.retries == 1


def test_f10_all_tries_together_are_bounded_by_the_patience():
    began = time.monotonic()
    with (
        serving(refusal(429, "later", retry_after="3600")) as endpoint,
        pytest.raises(EndpointFailure, match="after 1 request"),
    ):
        ask(endpoint.url)
    assert time.monotonic() - began < 30
    with serving(Answer(GOOD.body, stall=5.0)) as endpoint, pytest.raises(EndpointFailure, match="no answer within"):
        ask(endpoint.url, timeout=60.0, patience=0.3)


def test_no_server_at_all_is_a_failure_of_this_reply():
    with pytest.raises(EndpointFailure, match="no connection"):
        ask("http://127.0.0.1:9/v1", retries=1)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusal(401, "no key"), "OPENAI_API_KEY"),
        (refusal(403, "not yours"), "OPENAI_API_KEY"),
        (refusal(404, "no such model"), "the model's name 'm'"),
        (refusal(402, "pay"), "fill it up"),
        (refusal(429, "gone", "insufficient_quota"), "fill it up"),
    ],
)
def test_what_no_request_can_mend_stops_at_once(answer, words):
    with serving(answer) as endpoint, pytest.raises(ConfigError, match=words):
        ask(endpoint.url)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(
    "answer",
    [
        refusal(400, "This model's maximum context length is 64 tokens"),
        refusal(400, "too long", "context_length_exceeded"),
        Answer({"error": {"code": 400, "message": "the request exceeds the available context size", "type": "x"}}, 400),
        Answer({"detail": "prompt is too long: 9000 tokens"}, 422),
    ],
)
def test_a16_a_full_context_is_no_failure_and_is_not_tried_again(answer):
    with serving(answer) as endpoint, pytest.raises(ContextOverflow):
        ask(endpoint.url)
    assert len(endpoint.requests) == 1


def test_another_refusal_is_a_failure_with_the_endpoint_s_words():
    with (
        serving(refusal(400, "temperature must be 1")) as endpoint,
        pytest.raises(EndpointFailure, match="temperature must"),
    ):
        ask(endpoint.url)
    assert len(endpoint.requests) == 1


def test_newer_models_get_the_limit_by_its_newer_name():
    with serving([refusal(400, "use 'max_completion_tokens' instead of 'max_tokens'"), GOOD]) as endpoint:
        ask(endpoint.url)
    assert "max_tokens" in endpoint.requests[0]
    assert endpoint.requests[1]["max_completion_tokens"] == 50
    assert "max_tokens" not in endpoint.requests[1]


def test_requests_that_were_under_way_by_the_older_name_are_asked_again_too():
    """Three episodes of four were lost: only the first to be refused found the older name still in use."""
    together = threading.Barrier(4, timeout=20)

    def script(body, number):
        if "max_tokens" in body:
            together.wait()
            return refusal(400, "use 'max_completion_tokens' instead of 'max_tokens'")
        return GOOD

    async def four(url):
        sampler = ApiSampler(Endpoint(url, concurrency=4), "m")
        request = ChatRequest((Message("user", "go"),), 7, 50, 0.5)
        try:
            return await asyncio.gather(*[sampler.reply(request, Usage()) for _ in range(4)])
        finally:
            await sampler.close()

    with serving(script) as endpoint:
        assert len(asyncio.run(four(endpoint.url))) == 4
    assert len(endpoint.requests) == 8


@pytest.mark.parametrize("value", ["2.5", "-3", "nan", "soon", formatdate(0), ""])
def test_any_retry_after_is_a_number_of_seconds(value):
    wait = api._asked_wait({"retry-after": value})
    assert wait == (2.5 if value == "2.5" else 0.0)


def test_retry_after_may_be_a_date_or_milliseconds():
    assert 50 < api._asked_wait({"retry-after": formatdate(time.time() + 60, usegmt=True)}) <= 60
    assert api._asked_wait({"retry-after-ms": "1500"}) == 1.5


def test_the_back_off_doubles_up_to_its_bound_and_never_all_at_once(monkeypatch):
    monkeypatch.setattr(api, "FIRST_WAIT", 0.5)
    sampler = ApiSampler(Endpoint("http://x/v1"), "m")
    for attempt, most in ((0, 0.5), (1, 1.0), (3, 4.0), (20, 30.0), (2000, 30.0)):
        waits = [sampler._back_off(min(attempt, 900)) for _ in range(50)]
        assert most / 2 <= min(waits) < max(waits) <= most
    asyncio.run(sampler.close())


@pytest.mark.parametrize(
    "answer", [refusal(401, f"bad key {CANARY}"), refusal(500, f"key {CANARY}"), completion(f"is {CANARY}")]
)
def test_h9_the_key_is_sent_and_stands_in_no_message_trace_or_reply(answer, monkeypatch, capfd):
    monkeypatch.setenv("MY_KEY", CANARY)
    texts = []
    with serving(answer) as endpoint:
        try:
            texts.append(repr(ask(endpoint.url, key_env="MY_KEY", retries=0)))
        except (ConfigError, EndpointFailure):
            texts.append(traceback.format_exc())
    assert endpoint.headers[0]["authorization"] == f"Bearer {CANARY}"
    captured = capfd.readouterr()
    for text in (*texts, captured.out, captured.err):
        assert CANARY not in text
    assert "[key]" in texts[0]


def test_h9_only_the_key_itself_is_taken_out():
    clean = Redactor("sk-abc/def+1")
    assert clean("num_tokens token sk-abc/def+1 sk-abc%2Fdef%2B1") == "num_tokens token [key] [key]"
    for short in (None, "token", "EMPTY"):  # stands for no key
        assert Redactor(short)("num_tokens EMPTY") == "num_tokens EMPTY"


@pytest.mark.parametrize(
    "url",
    [
        "http://user:sk-CANARY@host/v1",
        "https://sk-CANARY@host/v1",
        "http://host/v1?key=sk-CANARY",
        "http://host/#sk-CANARY",
        "ftp://sk-CANARY",
        "sk-CANARY",
        "http://host:sk-CANARY/v1",
        "",
        None,
    ],
)
def test_h9_a_url_with_more_than_a_place_is_refused_without_repeating_it(url):
    with pytest.raises(ConfigError, match="URL") as refused:
        Endpoint(url)
    assert "CANARY" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concurrency": 0}, "concurrency is 0"),
        ({"retries": -1}, "retries is -1"),
        ({"timeout": 0}, "timeout is 0"),
        ({"patience": float("inf")}, "patience is inf"),
        ({"price_in": 1.0}, "belong together"),
        ({"price_in": -1.0, "price_out": 1.0}, "price_in is -1.0"),
        ({"body": [1]}, "JSON object"),
        ({"body": {"messages": []}}, "must not hold 'messages'"),
    ],
)
def test_settings_of_an_endpoint_are_checked_with_words(settings, words):
    with pytest.raises(ConfigError, match=words):
        Endpoint("http://x/v1", **settings)


def test_a_key_that_was_named_must_be_there(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(ConfigError, match="NO_SUCH_KEY is empty or not set"):
        Endpoint("http://x/v1", key_env="NO_SUCH_KEY").key()
    monkeypatch.setenv("NO_SUCH_KEY", "sk-\x07CANARY")
    with pytest.raises(ConfigError) as refused:
        Endpoint("http://x/v1", key_env="NO_SUCH_KEY").key()
    assert "CANARY" not in str(refused.value)
    assert Endpoint("http://x/v1").key() is None


def test_the_whole_path_of_a_request_is_taken_for_its_base():
    assert Endpoint("http://x:1/v1/chat/completions/").url == "http://x:1/v1"


def test_without_the_client_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    with pytest.raises(ConfigError, match=r"openai client.*\[api\]"):
        ApiSampler(Endpoint("http://x/v1"), "m")
