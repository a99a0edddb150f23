"""Lock-step multi-turn collection: every live episode takes its turn in one batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ragen.envs.workers import InTurn, Workers
from ragen.episode import EndReason, Group, Trajectory
from ragen.errors import ConfigError, EnvironmentFault
from ragen.rollout.contexts import TokenContext
from ragen.rollout.runner import EnvironmentFactory, EpisodeRunner, EpisodeSpec, Rules, opened
from ragen.samplers.base import Request, SamplingParams, TokenSampler
from ragen.seeding import derive
from ragen.text.chat import ChatRenderer

Progress = Callable[[int], None]
Keep = Callable[[Sequence[EpisodeSpec], Sequence[Trajectory]], None]


@dataclass(frozen=True, slots=True)
class Collection:
    """What a collection gave: groups of sound episodes, and the episodes lost to faults of the environment."""

    groups: tuple[Group, ...]
    errors: tuple[Trajectory, ...]

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """All sound trajectories, in (group, member) order."""
        return tuple(t for group in self.groups for t in group.trajectories)


def collect(
    sampler: TokenSampler,
    renderer: ChatRenderer,
    make_env: EnvironmentFactory,
    specs: Sequence[EpisodeSpec],
    *,
    rules: Rules,
    params: SamplingParams,
    batch: int | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    all_may_fail: bool = False,
    workers: Workers | None = None,
) -> Collection:
    """Play the episodes of ``specs``, ``batch`` at a time (None = all at once), and group them.

    A group keeps the members that ended without a fault; statistics are taken over those (case F6). If *every* episode
    fails, EnvironmentFault is raised with the first message: the environment itself is broken. Where it is the prompt that
    never fits into the context, that is a ConfigError. With ``all_may_fail`` (a few episodes more of an environment that is
    known to work) neither is raised. Environments act through ``workers`` (None: in turn, here); the tokens of their texts
    are always made here, in the same order, so that the episodes are the same with any. ``keep`` is given each batch when
    it has been played.
    """
    workers = workers or InTurn()
    size = batch or max(1, len(specs))
    played: list[Trajectory] = []
    fault: Exception | None = None
    for start in range(0, len(specs), size):
        chunk = specs[start : start + size]
        envs = workers.environments(make_env, len(chunk))
        begun = workers.each(
            [(env, partial(opened, env, spec, thinking=rules.thinking)) for env, spec in zip(envs, chunk, strict=True)]
        )
        runners = [
            EpisodeRunner(spec, env, TokenContext(renderer, rules.context), rules, start)
            for spec, env, start in zip(chunk, envs, begun, strict=True)
        ]
        _play(runners, sampler, params, workers, progress)
        ended = [runner.trajectory(sampler.version) for runner in runners]
        played += ended
        if keep is not None:
            keep(chunk, ended)
        fault = fault or next((runner.fault for runner in runners if runner.fault is not None), None)
    errors = tuple(t for t in played if t.end is EndReason.ERROR)
    if specs and len(errors) == len(specs) and not all_may_fail:
        raise _all_failed(specs, fault)
    return Collection(in_groups(specs, played), errors)


def _all_failed(specs: Sequence[EpisodeSpec], fault: Exception | None) -> ConfigError | EnvironmentFault:
    if isinstance(fault, ConfigError):
        return fault
    failed = EnvironmentFault(
        f"all {len(specs)} episodes of '{specs[0].env}' failed; the first said: {fault}. "
        "Run ragen.envs.check_environment on it to see what breaks the contract"
    )
    failed.__cause__ = fault
    return failed


def in_groups(specs: Sequence[EpisodeSpec], played: Sequence[Trajectory]) -> tuple[Group, ...]:
    """The sound ones of the trajectories of ``specs``, by group; a group of which nothing is left is left out."""
    members: dict[int, list[Trajectory]] = {}
    for spec, trajectory in zip(specs, played, strict=True):
        if trajectory.end is not EndReason.ERROR:
            members.setdefault(spec.group, []).append(trajectory)
    return tuple(Group(index, tuple(trajectories)) for index, trajectories in members.items())


def _play(
    runners: Sequence[EpisodeRunner[TokenContext]],
    sampler: TokenSampler,
    params: SamplingParams,
    workers: Workers,
    progress: Progress | None,
) -> None:
    done = _count_ended(runners, 0, progress)
    while live := [(slot, runner) for slot, runner in enumerate(runners) if runner.end is None]:
        requests = [
            Request(
                slot=slot,
                context=runner.context.parts,
                seed=derive(runner.spec.sampling_seed, "", "turn", len(runner.turns)),
                max_new_tokens=runner.token_budget,
            )
            for slot, runner in live
        ]
        replies = [(runner, reply) for (_, runner), reply in zip(live, sampler.generate(requests, params), strict=True)]
        done_by = workers.each([(runner.env, partial(runner.act, reply)) for runner, reply in replies])
        for (runner, reply), acted in zip(replies, done_by, strict=True):
            runner.take(reply, acted)
        done = _count_ended(runners, done, progress)
    sampler.release()


def _count_ended(runners: Sequence[EpisodeRunner[TokenContext]], before: int, progress: Progress | None) -> int:
    ended = sum(runner.end is not None for runner in runners)
    if progress is not None and ended > before:
        progress(ended - before)
    return ended
