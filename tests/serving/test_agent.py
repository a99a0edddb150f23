"""A trained agent behind the endpoint plays as it does locally: the real server, the real client, the real model."""

import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.serving.conftest import running

import ragen
from ragen.cli.main import main
from ragen.errors import ConfigError
from ragen.samplers.base import Request, SamplingParams
from ragen.serving import server

openai = pytest.importorskip("openai")
PRESET = "frozen_lake-starpo-s-grpo-tiny"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, session_cache: Path) -> Path:
    """A run of no steps: the tiny model that knows the reply's form only, so that episodes take several turns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAGEN_CACHE", str(session_cache))
        settings = {
            "steps": 0,
            "eval.episodes": 0,
            "warmup": {"data": "format", "demonstrations": 1024, "epochs": 2},
            "run": {"root": str(tmp_path_factory.mktemp("runs")), "name": "agent"},
        }
        return Path(ragen.train(PRESET, settings, progress=False).run)


@pytest.mark.e2e
@pytest.mark.parametrize("context", ["full", "window"])
def test_an_agent_evaluated_over_http_gives_the_same_replies_token_for_token(
    context: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"eval": {"episodes": 12, "temperature": 0}, "rollout": {"context": context, "window": 1}}
    seen: dict[str, dict[tuple[int, ...], tuple[int, ...]]] = {"local": {}, "http": {}}
    generate = ragen.samplers.hf.HFSampler.generate

    def recorded(self: Any, requests: Any, params: Any, hear: Any = None) -> Any:
        out = generate(self, requests, params, hear)
        seen[where].update({r.context: c.token_ids for r, c in zip(requests, out, strict=True)})
        return out

    monkeypatch.setattr(ragen.samplers.hf.HFSampler, "generate", recorded)
    where = "local"
    local = ragen.evaluate(run, settings=settings, progress=False)
    where = "http"
    with running(server.load_served(run)) as client:
        over_http = ragen.evaluate_api(
            "agent", client.url, source=run / "config.yaml", settings=settings, progress=False, name="e"
        )
    assert seen["http"] == seen["local"]
    assert len(seen["local"]) > 12
    assert over_http.outcomes == local.outcomes
    assert over_http.returns == local.returns
    assert over_http.tokens == local.tokens
    assert over_http.valid_format == local.valid_format > 0.2


@pytest.mark.e2e
def test_the_openai_client_talks_to_an_agent(run: Path) -> None:
    served = server.load_served(run, rows=4)
    with running(served) as client, openai.OpenAI(base_url=client.url, api_key="none") as api:
        ask: Any = {"model": "agent", "messages": [{"role": "user", "content": "Which way?"}], "max_tokens": 12}
        one, two = (api.chat.completions.create(**ask, seed=3, n=3, logprobs=True) for _ in range(2))
        texts = [choice.message.content for choice in one.choices]
        assert texts == [choice.message.content for choice in two.choices]
        assert len(set(texts)) > 1
        assert all(text.startswith("<think>") for text in texts)
        assert all(token.logprob <= 0 for token in one.choices[0].logprobs.content)
        pieces = api.chat.completions.create(**ask, seed=3, stream=True)
        streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces)
        assert streamed == api.chat.completions.create(**ask, seed=3).choices[0].message.content
        assert [model.id for model in api.models.list()] == ["agent"]
        with pytest.raises(openai.BadRequestError, match="top_logprobs"):
            api.chat.completions.create(**ask, logprobs=True, top_logprobs=2)


def test_greedy_replies_do_not_depend_on_who_asks_at_the_same_time() -> None:
    served = server.load_served("tiny", {"model.device": "cpu"})
    prompts = [f"Question {i}: go {'Up ' * i}" for i in range(6)]
    sampler = served.worker._sampler
    alone = []
    for prompt in prompts:
        context = served.conversations.renderer.open(prompt)
        (completion,) = sampler.generate([Request(0, context, 0, 10)], SamplingParams(temperature=0))
        alone.append(completion.token_ids)
        sampler.release()
    answers: dict[int, Any] = {}
    with running(served) as client:

        def ask(i: int) -> None:
            answers[i] = client.chat(prompts[i], temperature=0, max_tokens=10, return_token_ids=True)["choices"][0]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [tuple(answers[i]["token_ids"]) for i in range(6)] == alone
    assert not answers[0]["message"]["content"].startswith("<think>")  # a model that is no run is not made to think
    assert not torch.is_inference_mode_enabled()


def test_hearing_the_ids_of_every_engine_is_hearing_what_is_returned() -> None:
    served = server.load_served("tiny")
    sampler = served.worker._sampler
    requests = [Request(i, served.conversations.renderer.open("a " * (1 + i % 2)), i, 5 + i) for i in range(5)]
    heard: dict[int, list[int]] = {i: [] for i in range(5)}
    out = sampler.generate(requests, SamplingParams(), lambda i, token: heard[i].append(token))
    assert [tuple(heard[i]) for i in range(5)] == [completion.token_ids for completion in out]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["serve", "no-such-model"], "no-such-model"),
        (["serve", "tiny", "--port", "99999"], "--port is 99999"),
        (["serve", "tiny", "--host", "300.0.0.1"], "cannot listen on 300.0.0.1"),
        (["serve", "tiny", "--rows", "0"], "--rows"),
        (["serve", "tiny", "--model", "x"], "--model means nothing here"),
    ],
)
def test_mistakes_are_told_in_words(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_before_a_model_is_loaded() -> None:
    with server.bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1 port {port}"):
            server.bind("127.0.0.1", port)


def test_without_the_extra_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    with pytest.raises(ConfigError, match=r"starlette and uvicorn.*\[serve\]"):
        server.load_served("tiny")
