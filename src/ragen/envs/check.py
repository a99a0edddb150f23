"""A checker of the environment contract, for every registered environment and for yours."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from ragen.envs.base import FLAGS, Environment, Step
from ragen.envs.guard import Guarded, guarded
from ragen.errors import EnvironmentFault
from ragen.modules import told
from ragen.seeding import derive, generator
from ragen.tools.call import CallError, is_final, read_call
from ragen.tools.function import ToolError, ToolFailure
from ragen.wording import counted

SLOW_S = 1.0  # seconds from which a step is told
CALLS = 20  # of the listed calls, how many are made of each instance
CHANGING = re.compile(r"^[a-z ]+: (?=raised )| \(instance seed \d+\)")  # what differs where one fault is found again
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


def check_environment(
    factory: Factory, *, seeds: Sequence[int] = tuple(range(8)), single_instance: bool = False
) -> list[str]:
    """What is wrong with the environments that ``factory`` makes; an empty list says that the contract holds.

    ``seeds`` (two or more) are the instance seeds played, with random valid actions. ``single_instance=True`` allows an
    environment that has only one initial state. A check that raises is reported as a problem, not raised.
    """
    found: dict[str, list[str]] = {}
    checks: list[Callable[[Factory, Sequence[int]], Iterator[str]]] = list(CHECKS)
    if not single_instance:
        checks.append(_instances_vary)
    for check in checks:
        for problem in _problems(check, factory, seeds):
            found.setdefault(CHANGING.sub("", problem), []).append(problem)
    return [same[0] if len(same) == 1 else f"{same[0]} ({len(same)} times)" for same in found.values()]


def _problems(
    check: Callable[[Factory, Sequence[int]], Iterator[str]], factory: Factory, seeds: Sequence[int]
) -> Iterator[str]:
    """What a check finds, and what ends it."""
    try:
        yield from check(factory, seeds)
    except EnvironmentFault as fault:  # an exception or a wrong type: the guard's words, the same in every check
        yield str(fault)
    except (Exception, SystemExit) as error:
        yield f"{check.__name__.strip('_').replace('_', ' ')}: raised {type(error).__name__}: {error}"


def _start(factory: Factory, seed: int, dynamics: int = 0) -> tuple[Guarded, Any]:
    """An environment behind its guard (types are checked there) and its first observation."""
    env = guarded(factory())
    return env, env.reset(instance_seed=seed, dynamics_seed=dynamics)


def _moves(env: Guarded, seed: int) -> Iterator[tuple[str, Step]]:
    """Random valid actions and their steps until the end or the budget."""
    rng = generator(derive(seed, "check", "actions"))
    for _ in range(min(env.settings.max_actions, 20)):
        words = env.actions()
        action = words[int(rng.integers(len(words)))]
        step = env.step(action)
        yield action, step
        if step.terminated or step.truncated:
            return


def _transcript(env: Guarded, first: Any, seed: int) -> list[Any]:
    log: list[Any] = [first.text, env.actions(), env.forms(), env.instructions(), env.content(), env.anchor(), env.success]
    for action, step in _moves(env, seed):
        flags = [step.info.get(flag) for flag in FLAGS]
        answer = (action, step.told, step.observation, step.reward, step.terminated, step.truncated)
        log.append((*answer, flags, env.success, env.anchor()))
    return log


def _instructions(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        if not env.instructions().strip():
            yield f"instructions() must say what the task is, got {env.instructions()!r}"


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
            starts.append((first.text, env.actions(), env.forms(), env.instructions(), env.content(), env.anchor()))
        if any(start != starts[0] for start in starts):
            yield f"the initial state depends on the dynamics seed (instance seed {seed}): members of a group must share it"


def _global_generators(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    before = random.getstate()
    legacy = np.random.get_state()
    for seed in seeds:
        env, _ = _start(factory, seed)
        env.plan()
        env.best_success()
        env.thought(generator(seed), env.actions()[:1])
        for player in env.players().values():
            player(env, generator(seed))
        _transcript(env, env.reset(instance_seed=seed, dynamics_seed=0), seed)
    if random.getstate() != before:
        yield "the global generator `random` was used: draw from a generator made of the seeds"
    after = np.random.get_state()
    if any(not np.array_equal(one, two) for one, two in zip(legacy, after, strict=True)):
        yield "the global generator `numpy.random` was used: draw from a generator made of the seeds"


def _step_flags(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        for action, step in _moves(env, seed):
            if step.info.get("action_is_valid") is False:
                yield f"info says that the listed action {action!r} is not valid"


def _success_flag(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        if env.success is not False:
            yield f"success must be False at the start, got {env.success!r} (instance seed {seed})"
        for _, step in _moves(env, seed):
            if step.info.get("success", env.success) != env.success:
                yield f"info['success'] is {step.info.get('success')!r} while success is {env.success!r}"


def _action_words(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        words = env.actions()
        if len(set(words)) != len(words):
            yield f"actions() lists a word twice: {words!r}"
        for word in words:
            if env.match(word) != word:
                yield f"match({word!r}) must be that action, got {env.match(word)!r}"


def _hostile_text(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    env, _ = _start(factory, seeds[0])
    for text in HOSTILE:
        try:
            env.match(text)
        except EnvironmentFault as fault:
            yield str(fault)
            return


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
        env.best_success()
        if _transcript(env, first, seed) != alone:
            yield f"asking for plan() or best_success() changes the episode (instance seed {seed})"
        env.reset(instance_seed=seed, dynamics_seed=0)
        for _, step in _moves(env, seed):
            if not step.terminated and not step.truncated:
                yield from _plan_problems(env)


def _plan_problems(env: Guarded) -> Iterator[str]:
    plan = env.plan()
    if plan is not None and len(plan) > env.settings.max_actions_per_turn:
        yield f"plan() must hold at most {env.settings.max_actions_per_turn} actions (max_actions_per_turn), got {plan!r}"


def _stable_content(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    texts: dict[str, str] = {}
    for seed in seeds:
        env, first = _start(factory, seed)
        content = env.content()
        if content is None:
            continue
        for _ in _moves(env, seed):
            if env.content() != content:
                yield f"content() changes during the episode (instance seed {seed}); it names the initial state"
        if texts.setdefault(content, first.text) != first.text:
            yield f"two different initial states share the content {content!r}"


def _anchors(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    given: set[bool] = set()
    for seed in seeds:
        env, _ = _start(factory, seed)
        before = env.anchor()
        given.add(before is not None)
        for action, step in _moves(env, seed):
            anchor = env.anchor()
            given.add(anchor is not None)
            if step.info.get("action_is_effective") is False and anchor != before:
                yield f"anchor() changed with {action!r}, which changed nothing, but equal states share a key"
            before = anchor
    if len(given) > 1:
        yield "anchor() is None in some states and a key in others: give one in every state, or none at all"


def _thoughts(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, _ = _start(factory, seed)
        thought = env.thought(generator(seed), env.actions()[:1])
        if not thought.strip():
            yield f"thought() must not be blank, got {thought!r}"
        elif env.thought(generator(seed), env.actions()[:1]) != thought:
            yield "thought() must depend only on its generator, its actions and the state"


def _facts(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    for seed in seeds:
        env, first = _start(factory, seed)
        alone = _transcript(env, first, seed)
        first = env.reset(instance_seed=seed, dynamics_seed=0)
        known = env.facts()
        if _start(factory, seed, dynamics=1)[0].facts() != known or env.facts() != known:
            yield f"facts() must depend only on the state, which a group shares at its start (instance seed {seed})"
        if _transcript(env, first, seed) != alone:
            yield f"asking for facts() changes the episode (instance seed {seed})"


def _tools(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    """The listed calls, made directly: ``step`` tells an agent what a tool raised, and its author nothing."""
    found: dict[tuple[str, str], str] = {}
    for seed in seeds:
        env, _ = _start(factory, seed)
        tools = {tool.name: tool for tool in env.tools() or ()}
        for action in env.actions()[:CALLS] if tools else ():
            if is_final(action):
                continue
            try:
                call = read_call(action)
                tools[call.name](call.arguments)
            except ToolFailure as error:
                cause = error.__cause__ or error
                why = f"the tool '{call.name}' raised {told(cause, type(env.inner))} in the listed call {action}"
                found.setdefault(
                    (call.name, type(cause).__name__), f"{why}: mend it, or raise ToolError to tell the agent why"
                )
            except (CallError, ToolError):
                continue  # a call that cannot be made is match()'s matter, an answer to the agent no fault
    yield from found.values()


def _slow_steps(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    """The slowest step; an episode with a slow one is played again, for another process may have held it up."""
    slow: list[tuple[float, str]] = []
    for seed in seeds:
        times = _times(factory, seed)
        if any(seconds >= SLOW_S for seconds, _ in times):
            both = map(min, times, _times(factory, seed))
            slow += [timed for timed in both if timed[0] >= SLOW_S]
    if slow:
        seconds, action = max(slow)
        yield (
            f"step({action!r}) took {seconds:.1f} s, and {counted(len(slow), 'step')} took {SLOW_S:g} s or more: every "
            "rollout waits for them; make them faster, or give tools a timeout_s"
        )


def _times(factory: Factory, seed: int) -> list[tuple[float, str]]:
    """The seconds that each step of an episode takes, and its action."""
    env, _ = _start(factory, seed)
    times, begun = [], perf_counter()
    for action, _ in _moves(env, seed):
        times.append((perf_counter() - begun, action))
        begun = perf_counter()
    return times


def _instances_vary(factory: Factory, seeds: Sequence[int]) -> Iterator[str]:
    starts = set()
    for seed in seeds:
        env, first = _start(factory, seed)
        starts.add((first.text, env.actions(), env.instructions()))
    if len(starts) < 2:
        yield f"{len(seeds)} instance seeds give the same initial state: the seed is ignored (or pass single_instance=True)"


CHECKS = (
    _instructions,
    _determinism,
    _same_start_for_a_group,
    _global_generators,
    _step_flags,
    _success_flag,
    _action_words,
    _hostile_text,
    _isolation,
    _oracle,
    _stable_content,
    _anchors,
    _thoughts,
    _facts,
    _tools,
    _slow_steps,
)
