"""Demonstrations made by the environment itself: random valid play (teaches only the format) or the oracle's."""

from collections.abc import Callable, Sequence

import numpy as np

from ragen.envs.base import Environment
from ragen.envs.guard import guarded, made
from ragen.episode import Completion, StopReason, Trajectory
from ragen.errors import EnvironmentFault
from ragen.rollout.contexts import TokenContext
from ragen.rollout.runner import EnvironmentFactory, EpisodeRunner, EpisodeSpec, Rules
from ragen.seeding import derive, generator
from ragen.text.chat import ChatRenderer
from ragen.text.parser import THINK
from ragen.text.prompts import reply_text
from ragen.tools.call import is_final

Player = Callable[[Environment, np.random.Generator], Sequence[str]]


def random_player(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    """A random number (1 … max_actions_per_turn) of random valid actions; a final answer is given alone."""
    words = env.actions()
    count = int(rng.integers(1, env.settings.max_actions_per_turn + 1))
    turn = [words[int(rng.integers(len(words)))] for _ in range(count)]
    return turn if env.tools() is None else [word for word in turn if is_final(word)][:1] or turn


def optimal_player(env: Environment, rng: np.random.Generator) -> Sequence[str]:
    """The oracle's next turn."""
    del rng
    plan = env.plan()
    if plan is None:
        raise EnvironmentFault(
            f"{guarded(env).name} has no oracle here: its plan() is None; for a warm-up use warmup.data format"
        )
    return plan


def players_of(env: Environment) -> dict[str, Player]:
    """The reference players of an environment that was reset: random, its own, and the oracle where there is one."""
    guard = guarded(env)
    players: dict[str, Player] = {"random": random_player, **guard.players()}
    if guard.plan() is not None:
        players["optimal"] = optimal_player
    return players


def demonstrate(
    spec: EpisodeSpec, make_env: EnvironmentFactory, renderer: ChatRenderer, rules: Rules, player: Player
) -> Trajectory:
    """One episode as the policy would live it, with the player's replies as exact ids.

    A fault of the environment, an oracle that has no answer included, ends it with ``EndReason.ERROR``.
    """
    runner = EpisodeRunner(spec, made(make_env), TokenContext(renderer, rules.context), rules)
    env = runner.env
    rng = generator(spec.sampling_seed)
    while runner.end is None:
        left = min(env.settings.max_actions_per_turn, env.settings.max_actions - runner.actions_used)
        try:
            actions = list(player(env, rng))[:left]
            thought = env.thought(rng, actions)
            text = reply_text(thought, actions, thinking=rules.thinking, calls=env.tools() is not None)
        except EnvironmentFault as fault:
            runner.fail(fault)
            break
        except ValueError as error:  # an answer that holds a tag of the format: nobody could give it
            runner.fail(EnvironmentFault(f"{env.name}: {error}"))
            break
        if renderer.opens_thinking:
            text = text.removeprefix(THINK)
        ids = renderer.reply_ids(text)
        zeros = (0.0,) * len(ids)
        runner.apply(Completion(ids, zeros, zeros, text, StopReason.END))
    return runner.trajectory(policy_version=-1)


def demonstration_specs(env: str, *, seed: int, count: int) -> list[EpisodeSpec]:
    """The episodes of the warm-up; callers leave out instances of the evaluation set."""
    return [
        EpisodeSpec(
            env=env,
            group=index,
            member=0,
            instance_seed=derive(seed, "warmup", "instance", index),
            dynamics_seed=derive(seed, "warmup", "dynamics", index),
            sampling_seed=derive(seed, "warmup", "thought", index),
        )
        for index in range(count)
    ]


def play(spec: EpisodeSpec, make_env: EnvironmentFactory, player: Player) -> tuple[bool, float]:
    """Play one episode with actions alone (no text): success and task return, under the environment's budgets.

    Raises:
        EnvironmentFault: the environment failed.
    """
    env = made(make_env)
    env.reset(instance_seed=spec.instance_seed, dynamics_seed=spec.dynamics_seed)
    rng = generator(spec.sampling_seed)
    total, used = 0.0, 0
    for _ in range(env.settings.max_turns):
        left = min(env.settings.max_actions_per_turn, env.settings.max_actions - used)
        for action in list(player(env, rng))[:left]:
            step = env.step(action)
            total, used = total + step.reward, used + 1
            if step.terminated or step.truncated:
                return env.success, total
        if used >= env.settings.max_actions:
            break
    return env.success, total
