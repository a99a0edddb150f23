"""Collections with workers: the same transcripts as without, and faults that cost one episode."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ragen.envs import find_environment
from ragen.envs.workers import Pool
from ragen.episode import Completion, EndReason, StopReason
from ragen.rollout.collect import Collection, collect
from ragen.rollout.runner import EpisodeSpec, Rules
from ragen.samplers.base import Request, SamplingParams
from ragen.seeding import generator
from ragen.text.chat import ChatRenderer

WORLDS = Path(__file__).parents[1] / "envs" / "workers" / "worlds.py"


class Words:
    """A sampler that answers with words drawn by the request's seed, now and then with nonsense."""

    version = 1

    def __init__(self, tokenizer: Any, renderer: ChatRenderer, words: Sequence[str]) -> None:
        self.tokenizer, self.renderer, self.words = tokenizer, renderer, [*words, "jump"]

    def generate(self, requests: Sequence[Request], params: SamplingParams) -> list[Completion]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Completion:
        rng = generator(request.seed)
        said = " || ".join(self.words[int(i)] for i in rng.integers(len(self.words), size=int(rng.integers(1, 4))))
        text = f"<think>{said}</think><answer>{said}</answer>" if rng.random() < 0.9 else said
        ids = (*self.tokenizer(text, add_special_tokens=False)["input_ids"], self.renderer.end_of_turn)
        zeros = (0.0,) * len(ids)
        return Completion(ids, zeros, zeros, text, StopReason.END)

    def load(self, weights: Any, version: int) -> None: ...

    def release(self) -> None: ...


@pytest.fixture
def renderer(chatml_tokenizer: Any) -> ChatRenderer:
    return ChatRenderer(chatml_tokenizer)


def collected(
    tokenizer: Any,
    renderer: ChatRenderer,
    spec: dict[str, Any],
    workers: Pool | None,
    dynamics: Sequence[int] = range(12),
) -> Collection:
    found = find_environment(spec)
    sampler = Words(tokenizer, renderer, found.make().actions() if ":" in spec["name"] else started_actions(found.make))
    specs = [EpisodeSpec(found.name, n // 3, n % 3, n // 3 + 4, chance, n) for n, chance in enumerate(dynamics)]
    return collect(
        sampler,
        renderer,
        found.make,
        specs,
        rules=Rules(max_new_tokens=400, max_context=20_000),
        params=SamplingParams(),
        batch=5,
        workers=workers,
    )


def started_actions(make: Any) -> tuple[str, ...]:
    env = make()
    env.reset(instance_seed=0, dynamics_seed=0)
    return tuple(env.actions())


ENVS = [
    {"name": name} for name in ("bandit", "frozen_lake", "sokoban", "countdown", "sudoku", "2048", "sql", f"{WORLDS}:Stairs")
]


@pytest.mark.parametrize("mode", ["process", "thread"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_transcripts_do_not_depend_on_the_workers(
    chatml_tokenizer: Any, renderer: ChatRenderer, count: int, mode: Any
) -> None:
    with closing(Pool(count, mode, timeout_s=60)) as pool:
        for spec in ENVS:
            alone = collected(chatml_tokenizer, renderer, spec, None)
            assert collected(chatml_tokenizer, renderer, spec, pool) == alone
            assert not alone.errors
        assert pool.replaced == 0


@pytest.mark.parametrize(
    ("name", "mode"),
    [("Raises", "process"), ("Raises", "thread"), ("Stalls", "process"), ("Stalls", "thread"), ("Crashes", "process")],
)
def test_a_fault_costs_one_episode_of_many(chatml_tokenizer: Any, renderer: ChatRenderer, name: str, mode: Any) -> None:
    sound = collected(chatml_tokenizer, renderer, {"name": f"{WORLDS}:Stairs"}, None)
    long = next(t for t in sound.trajectories[1:] if len(t.turns) > 2 and sum(len(turn.actions) for turn in t.turns) >= 3)
    place = sound.trajectories.index(long)
    dynamics = [13 if n == place else n for n in range(12)]
    with closing(Pool(2, mode, timeout_s=2 if name == "Stalls" else 60)) as pool:
        found = collected(chatml_tokenizer, renderer, {"name": f"{WORLDS}:{name}"}, pool, dynamics)
        assert pool.replaced == (0 if name == "Raises" else 1)
    (lost,) = found.errors
    assert (lost.end, lost.member, lost.instance_seed) == (EndReason.ERROR, long.member, long.instance_seed)
    assert name in lost.error
    assert [t.turns for t in found.trajectories] == [t.turns for t in sound.trajectories if t is not long]
