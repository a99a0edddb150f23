"""Which instances are played: training apart from evaluation, by seed and by content."""

from collections.abc import Callable, Sequence
from contextlib import suppress

from ragen.envs.guard import Guarded, Unmade, made
from ragen.errors import ConfigError, EnvironmentFault
from ragen.rollout.contexts import TokenContext
from ragen.rollout.runner import EnvironmentFactory, EpisodeRunner, EpisodeSpec, Rules
from ragen.seeding import derive, generator
from ragen.text.chat import ChatRenderer

MAX_TRIES = 200
PROBES = 8


def evaluation_specs(env: str, *, episodes: int, samples: int, seed: int) -> list[EpisodeSpec]:
    """Fixed evaluation episodes: ``episodes`` instances, ``samples`` of each.

    Seeds do not depend on the environment's name, so variants of one environment are compared on the same instances.
    """
    return [
        EpisodeSpec(
            env=env,
            group=index,
            member=member,
            instance_seed=derive(seed, "eval", "instance", index),
            dynamics_seed=derive(seed, "eval", "dynamics", index, member),
            sampling_seed=derive(seed, "eval", "sampling", index, member),
        )
        for index in range(episodes)
        for member in range(samples)
    ]


def contents(make_env: EnvironmentFactory, specs: Sequence[EpisodeSpec]) -> frozenset[str]:
    """The content keys of these instances (empty for environments exempt from the content check)."""
    keys = (content_of(make_env, seed, tries=PROBES) for seed in {spec.instance_seed for spec in specs})
    return frozenset(key for key in keys if key is not None)


def content_of(make_env: EnvironmentFactory, instance_seed: int, *, tries: int = 1) -> str | None:
    """The content key of one instance; None where the environment is exempt, or fails (as its episode then does too).

    Raises:
        EnvironmentFault: the environment could not be made in ``tries`` tries, which says nothing of the instance.
    """
    env = made(make_env)
    for _ in range(tries - 1):
        env = made(make_env) if isinstance(env, Unmade) else env
    try:
        env.reset(instance_seed=instance_seed, dynamics_seed=0)
        return env.content()
    except EnvironmentFault as fault:
        if isinstance(env, Unmade):
            raise EnvironmentFault(f"whether an instance is held out cannot be known: {fault}") from fault
        return None


def started(make_env: EnvironmentFactory) -> Guarded:
    """An environment in its initial state, on the first of PROBES instances without a fault; where all fail, the first."""
    return _sound(make_env, lambda env, turn: None)


def check_start(make_env: EnvironmentFactory) -> None:
    """Try each method of an environment once, so that what is always wrong is known before anything long begins.

    Raises:
        EnvironmentFault: none of PROBES instances is without a fault; the first one.
    """
    _sound(make_env, lambda env, turn: env.step(turn[0]))


def check_first_prompt(env: str, make_env: EnvironmentFactory, renderer: ChatRenderer, rules: Rules) -> None:
    """Begin an episode on each of PROBES instances until one can, so that a context too small for all is known early.

    Raises:
        ConfigError: the first prompt and a reply fit into the context on none of them; what the first one said.
        TemplateError: the renderer cannot do what the context policy asks for.
    """
    refused: list[ConfigError] = []
    for seed in range(PROBES):
        spec = EpisodeSpec(env, group=0, member=0, instance_seed=seed, dynamics_seed=0, sampling_seed=0)
        with suppress(EnvironmentFault):
            fault = EpisodeRunner(spec, made(make_env), TokenContext(renderer, rules.context), rules).fault
            if fault is None:
                return
            if isinstance(fault, ConfigError):
                refused.append(fault)
    if refused:
        raise refused[0]


def _sound(make_env: EnvironmentFactory, then: Callable[[Guarded, Sequence[str]], object]) -> Guarded:
    faults = []
    for seed in range(PROBES):
        try:
            env = made(make_env)
            then(env, _look_at(env, seed))
        except EnvironmentFault as fault:
            faults.append(fault)
        else:
            return env
    raise faults[0]


def _look_at(env: Guarded, seed: int) -> Sequence[str]:
    """Call all that changes nothing, at the start of an instance; returns a turn's actions."""
    env.reset(instance_seed=seed, dynamics_seed=0)
    env.instructions()
    env.actions()
    env.anchor()
    env.content()
    env.facts()
    env.best_success()
    _ = env.success
    turn = env.plan() or env.actions()[:1]
    env.thought(generator(seed), turn)
    for player in env.players().values():
        player(env, generator(seed))
    return turn


def training_specs(
    env: str,
    make_env: EnvironmentFactory,
    *,
    seed: int,
    first: int,
    instances: Sequence[int],
    members: int,
    held_out: frozenset[str],
) -> list[EpisodeSpec]:
    """The episodes of groups number ``first``, ``first`` + 1, …: G members each of the training ``instances``, by number.

    The number of a group names its chances (slips, sampling): an instance played again meets others. An instance whose
    content is in ``held_out`` is replaced by the next draw of the same number, at most MAX_TRIES times.
    """
    return [
        EpisodeSpec(
            env=env,
            group=group,
            member=member,
            instance_seed=instance_seed,
            dynamics_seed=derive(seed, "train", "dynamics", group, member),
            sampling_seed=derive(seed, "train", "sampling", group, member),
        )
        for group, instance in enumerate(instances, start=first)
        for instance_seed in (_free_instance(env, make_env, seed, instance, held_out),)
        for member in range(members)
    ]


def _free_instance(env: str, make_env: EnvironmentFactory, seed: int, index: int, held_out: frozenset[str]) -> int:
    unmade: EnvironmentFault | None = None
    for attempt in range(MAX_TRIES):
        instance_seed = derive(seed, "train", "instance", index, attempt)
        try:
            if not held_out or content_of(make_env, instance_seed) not in held_out:
                return instance_seed
        except EnvironmentFault as fault:  # nobody can say whether it is held out: the next draw
            unmade = fault
    if unmade is not None:
        raise unmade
    raise ConfigError(
        f"'{env}' gave {MAX_TRIES} instances in a row that are in the evaluation set: lower eval.episodes, or choose "
        "settings with more different instances"
    )
