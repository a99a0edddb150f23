"""A checker of the environment contract, for every registered environment and for yours."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ragen.envs.base import Environment, Observation, Step
from ragen.seeding import derive, generator

Factory = Callable[[], Environment]

HOSTILE = (
    "",
    " \t\n",
    "\x00",
    "a\x00b",
    "x" * 10_000,
    "|" * 10_000,
    "🙂🧊",
    "مرحبا",
    "\u202eUp\u202c",
    "1e999",
    "-1",
    "NaN",
    "None",
    "null",
    "{}",
    "\ud800",
    "<answer>Up</answer>",
    "<|im_end|>",
    "%s {0} \\",
)
FLAGS = ("success", "action_is_valid", "action_is_effective")


def check_environment(
    factory: Factory, *, seeds: Sequence[int] = tuple(range(8)), single_instance: bool = False
) -> list[str]:
    """What is wrong with the environments that ``factory`` makes; an empty list says that the contract holds.

    ``seeds`` (two or more) are the instance seeds played, with random valid actions. ``single_instance=True`` allows an
    environment that has only one initial state. A check that raises is reported as a problem, not raised.
    """
    problems: list[str] = []
    checks: list[Callable[[Factory, Sequence[int]], Iterator[str]]] = list(CHECKS)
    if not single_instance:
        checks.append(_instances_vary)
    for check in checks:
        try:
            found = list(check(factory, seeds))
        except Exception as error:
            found = [f"{check.__name__.strip('_').replace('_', ' ')}: raised {type(error).__name__}: {error}"]
        problems.extend(problem for problem in dict.fromkeys(found) if problem not in problems)
    return problems


def _start(factory: Factory, seed: int, dynamics: int = 0) -> tuple[Any, Any]:
    """An environment and its first observation, untyped: whether the types are right is what is checked."""
    env = factory()
    return env, env.reset(instance_seed=seed, dynamics_seed=dynamics)


def _moves(env: Any, seed: int) -> Iterator[tuple[str, Any]]:
    """Random valid actions and their steps until the end or the budget."""
    rng = generator(derive(seed, "check", "actions"))
    for _ in range(min(env.settings.max_actions, 20)):
        words = env.actions()
        action = words[int(rng.integers(len(words)))]
        step = env.step(action)
        yield action, step
        if step.terminated or step.truncated:
            return


def _transcript(env: Any, first: Any, seed: int) -> list[Any]:
    log: list[Any] = [first.text, env.actions(), env.instructions(), env.content(), env.success]
    for action, step in _moves(env, seed):
        flags = [step.info.get(flag) for flag in FLAGS]
        log.append((action, step.observation, step.reward, step.terminated, step.truncated, flags, env.success))
    return log


def _observation_types(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, first = _start(factory, seed)
        if not isinstance(first, Observation) or not isinstance(first.text, str):
            yield f"reset must return an Observation with a text, got {first!r}"
        if not isinstance(env.instructions(), str) or not env.instructions().strip():
            yield f"instructions() must be a text that says what the task is, got {env.instructions()!r}"


def _determinism(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, first = _start(factory, seed, dynamics=seed + 1)
        log = _transcript(env, first, seed)
        again, other_first = _start(factory, seed, dynamics=seed + 1)
        if _transcript(again, other_first, seed) != log:
            yield f"two environments with equal seeds and actions differ (instance seed {seed})"
        if _transcript(env, env.reset(instance_seed=seed, dynamics_seed=seed + 1), seed) != log:
            yield f"a reset environment differs from a new one with equal seeds and actions (instance seed {seed})"


def _same_start_for_a_group(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        starts = []
        for dynamics in range(4):
            env, first = _start(factory, seed, dynamics)
            starts.append((first.text, env.actions(), env.instructions(), env.content()))
        if any(start != starts[0] for start in starts):
            yield f"the initial state depends on the dynamics seed (instance seed {seed}): members of a group must share it"


def _global_generators(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    before = random.getstate()
    legacy = np.random.get_state()
    for seed in seeds:
        env, first = _start(factory, seed)
        env.plan()
        env.best_success()
        env.thought(generator(seed), env.actions()[:1])
        _transcript(env, first, seed)
    if random.getstate() != before:
        yield "the global generator `random` was used: draw from a generator made of the seeds"
    after = np.random.get_state()
    if any(not np.array_equal(one, two) for one, two in zip(legacy, after, strict=True)):
        yield "the global generator `numpy.random` was used: draw from a generator made of the seeds"


def _step_types(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        for action, step in _moves(env, seed):
            if not isinstance(step, Step):
                yield f"step must return a Step, got {step!r}"
                return
            yield from _step_problems(action, step)


def _step_problems(action: str, step: Any) -> Iterator[str]:
    if not isinstance(step.observation, str):
        yield f"an observation must be text, got {step.observation!r}"
    if isinstance(step.reward, bool) or not isinstance(step.reward, int | float) or not math.isfinite(step.reward):
        yield f"a reward must be a finite float, got {step.reward!r}"
    if not isinstance(step.terminated, bool) or not isinstance(step.truncated, bool):
        yield f"terminated and truncated must be bools, got {step.terminated!r} and {step.truncated!r}"
    for flag in FLAGS:
        if not isinstance(step.info.get(flag), bool):
            yield f"info must carry the bool '{flag}', got {step.info.get(flag)!r}"
    if step.info.get("action_is_valid") is False:
        yield f"info says that the listed action {action!r} is not valid"


def _success_flag(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        if env.success is not False:
            yield f"success must be False at the start, got {env.success!r} (instance seed {seed})"
        for _, step in _moves(env, seed):
            if step.info.get("success") != env.success:
                yield f"info['success'] is {step.info.get('success')!r} while success is {env.success!r}"


def _action_words(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        words = env.actions()
        if not words:
            yield "actions() is empty"
        if len(set(words)) != len(words):
            yield f"actions() lists a word twice: {words!r}"
        for word in words:
            if not isinstance(word, str) or any(mark in word for mark in ("||", "<answer>", "</answer>")):
                yield f"an action must be a text without '||' or answer tags, got {word!r}"
            elif env.match(word) != word:
                yield f"match({word!r}) must be that action, got {env.match(word)!r}"


def _hostile_text(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    env, _ = _start(factory, seeds[0])
    for text in HOSTILE:
        shown = repr(text if len(text) < 40 else f"{text[:8]}… ({len(text)} characters)")
        try:
            matched = env.match(text)
        except Exception as error:
            yield f"match({shown}) raised {type(error).__name__}: {error}"
            continue
        if matched is not None and not isinstance(matched, str):
            yield f"match({shown}) must be an action or None, got {matched!r}"


def _isolation(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, first = _start(factory, seed)
        alone = _transcript(env, first, seed)
        env, first = _start(factory, seed)
        other, other_first = _start(factory, seed + 1, dynamics=1)
        _transcript(other, other_first, seed + 1)
        if _transcript(env, first, seed) != alone:
            yield f"an episode changes when another environment is made and played (instance seed {seed})"


def _oracle(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, first = _start(factory, seed)
        alone = _transcript(env, first, seed)
        first = env.reset(instance_seed=seed, dynamics_seed=0)
        yield from _plan_problems(env)
        best = env.best_success()
        if best is not None and not 0 <= best <= 1:
            yield f"best_success must lie in [0, 1], got {best!r}"
        if _transcript(env, first, seed) != alone:
            yield f"asking for plan() or best_success() changes the episode (instance seed {seed})"
        env.reset(instance_seed=seed, dynamics_seed=0)
        for _, step in _moves(env, seed):
            if not step.terminated and not step.truncated:
                yield from _plan_problems(env)


def _plan_problems(env: Any) -> Iterator[str]:
    plan = env.plan()
    if plan is None:
        return
    if not 0 < len(plan) <= env.settings.max_actions_per_turn:
        yield f"plan() must hold 1 to {env.settings.max_actions_per_turn} actions (max_actions_per_turn), got {plan!r}"
    if any(action not in env.actions() for action in plan):
        yield f"plan() must hold actions of actions(), got {plan!r}"


def _reference_players(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        for name, player in env.players().items():
            chosen = player(env, generator(seed))
            if not chosen or any(action not in env.actions() for action in chosen):
                yield f"player '{name}' must return actions of actions(), got {chosen!r}"


def _stable_content(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    texts: dict[str, str] = {}
    for seed in seeds:
        env, first = _start(factory, seed)
        content = env.content()
        if content is None:
            continue
        if not isinstance(content, str):
            yield f"content() must be text or None, got {content!r}"
            continue
        for _ in _moves(env, seed):
            if env.content() != content:
                yield f"content() changes during the episode (instance seed {seed}); it names the initial state"
        if texts.setdefault(content, first.text) != first.text:
            yield f"two different initial states share the content {content!r}"


def _thoughts(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        thought = env.thought(generator(seed), env.actions()[:1])
        if not isinstance(thought, str) or not thought.strip() or "<" in thought:
            yield f"thought() must be a text without tags, got {thought!r}"
        elif env.thought(generator(seed), env.actions()[:1]) != thought:
            yield "thought() must depend only on its generator, its actions and the state"


def _instances_vary(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    starts = set()
    for seed in seeds:
        env, first = _start(factory, seed)
        starts.add((first.text, env.actions(), env.instructions()))
    if len(starts) < 2:
        yield f"{len(seeds)} instance seeds give the same initial state: the seed is ignored (or pass single_instance=True)"


CHECKS = (
    _observation_types,
    _determinism,
    _same_start_for_a_group,
    _global_generators,
    _step_types,
    _success_flag,
    _action_words,
    _hostile_text,
    _isolation,
    _oracle,
    _reference_players,
    _stable_content,
    _thoughts,
)
