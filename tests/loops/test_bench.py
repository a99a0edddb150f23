"""The benchmark's own accounts: tokens and operations by hand, real steps, a clock that is wound by hand."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen.envs.registry import environment_factory
from ragen.errors import ConfigError
from ragen.loops import bench
from ragen.loops.bench import StepBench, check_length, environment_step, product_rate

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(make_tokenizer: Any, save_llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = make_tokenizer("{{ messages }}", ["<|im_end|>"], eos="<|im_end|>")
    return save_llama(tmp_path_factory.mktemp("model"), tokenizer, max_position_embeddings=64, intermediate_size=24)


def test_a_step_samples_and_trains_exactly_what_was_asked(folder: Path) -> None:
    found = StepBench(folder, device=CPU, dtype=torch.float32)
    before = {name: value.clone() for name, value in found._policy.model.named_parameters()}
    times = found.step(found.prompts(3, 7), 4, 5, turns=2, between=6)
    assert len(times.sampling) == 2
    assert times.sampled == 3 * 4 * 5 * 2
    assert times.processed == 3 * 7 + 3 * 4 * (5 + 6 + 5)  # a group's prompt once
    assert times.total == pytest.approx(sum(times.sampling) + times.update)
    moved = [not torch.equal(before[name], value) for name, value in found._policy.model.named_parameters()]
    assert all(moved)


def test_a_score_of_the_texts_makes_the_credit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(bench, "update", lambda *given, **_: seen.append(given[3].advantages.amax(1)))
    scores = itertools.cycle([0.0, 1.0])
    found = StepBench(folder, device=CPU, dtype=torch.float32)
    found.step(found.prompts(1, 3), 2, 2, score=lambda _: next(scores))
    assert seen[0].tolist() == pytest.approx([0.0, 1.0], abs=1e-3)  # largest in a row: off mask 0, or (1 − ½) / ½


def test_operations_are_two_a_weight_and_token_forward_and_six_in_an_update(folder: Path) -> None:
    found = StepBench(folder, device=CPU, dtype=torch.float32)
    layer = 16 * (16 + 8 + 8) + 16 * 16 + 3 * 16 * 24 + 2 * 16
    body, head = 2 * layer + 16, found.vocabulary * 16
    assert (found.body_weights, found.head_weights) == (body, head)
    assert found.sampling_operations(10, 4) == 2 * (body * 14 + head * 10)
    assert found.update_operations(10, 40) == 6 * (body * 40 + head * 10)


def test_rates_are_work_over_time_of_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(ticks) * 0.25)
    assert product_rate(torch.float32, CPU) == pytest.approx(2 * 1024**3 / 0.25)
    assert environment_step(environment_factory({"name": "bandit"})(), 40) == pytest.approx(0.25)


def test_a_conversation_beyond_the_context_is_refused_before_anything_runs(folder: Path) -> None:
    check_length(folder, 64)
    with pytest.raises(ConfigError, match=r"65 tokens does not fit into the model's context of 64.*shorter"):
        check_length(folder, 65)
