"""Evaluation of an API model: the same episodes, prompts and rules as for a local one, played over HTTP."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, TypeVar

from ragen.config.schema import Config
from ragen.envs import Environment
from ragen.envs.workers import InTurn, Workers
from ragen.episode import EndReason, Trajectory
from ragen.errors import ConfigError, EnvironmentFault
from ragen.loops.compose import World, build_rules, build_workers
from ragen.loops.evaluate import ceiling, format_note, notes, score_players, shared_settings
from ragen.metrics.evaluation import EvalReport, evaluation_report
from ragen.rollout.collect import Progress, in_groups
from ragen.rollout.contexts import MessageContext
from ragen.rollout.instances import evaluation_specs
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules, opened
from ragen.runs.evaluations import EPISODES, EvaluationDirectory, PlayedEpisode
from ragen.runs.events import StoredTrajectory
from ragen.samplers.chat import ChatRequest, ChatSampler, ContextOverflow, EndpointFailure, Usage
from ragen.samplers.endpoint import Endpoint
from ragen.seeding import derive
from ragen.wording import counted

T = TypeVar("T")
DOWN_AFTER = 2  # episodes without a reply in a row, times the concurrency, after which an endpoint counts as down
UNLIMITED = 2**62  # tokens: a context's size is the endpoint's to know


def endpoint_settings(world: World, config: Config, endpoint: Endpoint, model: str) -> dict[str, Any]:
    """What makes the results of an evaluation at an endpoint what they are: another value is another evaluation."""
    player = {"endpoint": {"url": endpoint.url, "model": model, "body": endpoint.body}}
    return player | shared_settings(world, config)


def evaluate_endpoint(
    sampler: ChatSampler,
    endpoint: Endpoint,
    world: World,
    config: Config,
    evaluation: EvaluationDirectory,
    *,
    label: str,
    players: bool = True,
    progress: Progress | None = None,
) -> EvalReport:
    """Play what ``evaluation`` lacks of the fixed episodes, store each as it ends, and report on all of them.

    Episodes that got no reply are left out of every mean, counted in ``endpoint["failures"]``, and played again next time.
    Raises EndpointFailure where the endpoint is down (no episode in a row of many got through), ConfigError where it
    refuses every request; what was played is stored by then.
    """
    settings = config.eval
    specs = evaluation_specs(world.name, episodes=settings.episodes, samples=settings.samples, seed=settings.seed)
    done = {episode.place for episode in evaluation.episodes() if not episode.failure}
    todo = [spec for spec in specs if (spec.group, spec.member) not in done]
    if progress is not None and done:
        progress(len(done))
    rules = build_rules(config.rollout, UNLIMITED)
    with closing(build_workers(config)) as workers:
        game = _Game(sampler, world, workers, rules, settings.temperature, config.rollout.stop_strings)
        _run(_play_all(game, todo, evaluation, endpoint.concurrency, progress))
    report = _report(evaluation, specs, world, config, endpoint, label=label, players=players)
    why = "the model may not know the reply format, or its replies are cut"
    then = f"read them in {evaluation.path / EPISODES}; more --rollout.max_new_tokens, or --rollout.thinking false"
    report = replace(report, notes=(*report.notes, *format_note(report, why, then)))
    evaluation.write_report(report.to_dict())
    return report


@dataclass(frozen=True, slots=True)
class _Game:
    """All that an episode needs to be played."""

    sampler: ChatSampler
    world: World
    workers: Workers
    rules: Rules
    temperature: float
    stop_strings: tuple[str, ...]

    async def play(self, spec: EpisodeSpec) -> PlayedEpisode:
        """One episode to its end, or to the first reply that cannot be had."""
        (env,) = self.workers.environments(self.world.make, 1)
        begun = await self._in(env, partial(opened, env, spec, thinking=self.rules.thinking))
        runner = EpisodeRunner(spec, env, MessageContext(self.rules.context), self.rules, begun)
        usage, noted, failure = Usage(), Counter[str](), ""
        while runner.end is None:
            try:
                reply = await self.sampler.reply(self._request(runner), usage)
            except ContextOverflow as overflow:
                runner.overflow(str(overflow))
            except EndpointFailure as lost:
                failure = str(lost)
                runner.fail(lost)
            else:
                runner.take(reply.completion, await self._in(env, partial(runner.act, reply.completion)))
                noted.update(reply.notes)
        stored = StoredTrajectory(spec.group, runner.trajectory(0))
        return PlayedEpisode(stored, asdict(usage), noted, failure)

    async def _in(self, env: Environment, act: Callable[[], T]) -> T:
        """What ``act`` does in an environment: here, or, where workers do it, without keeping other episodes waiting."""
        if isinstance(self.workers, InTurn):
            return act()
        (result,) = await asyncio.to_thread(self.workers.each, [(env, act)])
        return result

    def _request(self, runner: EpisodeRunner[MessageContext]) -> ChatRequest:
        return ChatRequest(
            messages=runner.context.parts,
            seed=derive(runner.spec.sampling_seed, "", "turn", len(runner.turns)),
            max_new_tokens=runner.token_budget,
            temperature=self.temperature,
            stop_strings=self.stop_strings,
            thinking=self.rules.thinking,
        )


async def _play_all(
    game: _Game, todo: Sequence[EpisodeSpec], evaluation: EvaluationDirectory, concurrency: int, progress: Progress | None
) -> None:
    """Play ``concurrency`` episodes side by side until none is left: waiting overlaps; environments act one at a time, where
    they are not in workers.
    """
    left = iter(todo)
    in_a_row = 0

    async def work() -> None:
        nonlocal in_a_row
        for spec in left:
            episode = await game.play(spec)
            evaluation.add(episode)
            in_a_row = in_a_row + 1 if episode.failure else 0
            if progress is not None and not episode.failure:
                progress(1)
            if in_a_row >= DOWN_AFTER * concurrency:
                raise EndpointFailure(
                    f"the endpoint gave no reply in {counted(in_a_row, 'episode')} in a row; the last said: "
                    f"{episode.failure}. What was played is kept in '{evaluation.path}': repeat the command to go on"
                )

    workers = [asyncio.create_task(work()) for _ in range(min(concurrency, len(todo)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await game.sampler.close()


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end; in a thread of its own where this one runs a loop already (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _report(
    evaluation: EvaluationDirectory,
    specs: Sequence[EpisodeSpec],
    world: World,
    config: Config,
    endpoint: Endpoint,
    *,
    label: str,
    players: bool,
) -> EvalReport:
    last = evaluation.played()
    episodes = [last[spec.group, spec.member] for spec in specs]
    trajectories = [episode.stored.trajectory for episode in episodes]
    failures = [episode.failure for episode in episodes if episode.failure]
    faults = [t for t, e in zip(trajectories, episodes, strict=True) if t.end is EndReason.ERROR and not e.failure]
    groups = in_groups(specs, trajectories)
    if not groups:
        raise _nothing_left(evaluation, failures, faults)
    told = _told(evaluation.episodes(), episodes, endpoint, failures)
    firsts = specs[:: config.eval.samples]
    scores = score_players(world, firsts) if players else {}
    return evaluation_report(
        groups,
        env=world.name,
        settings=world.settings,
        model=label,
        samples=config.eval.samples,
        temperature=_temperature(endpoint, config),
        seed=config.eval.seed,
        errors=len(faults),
        ceiling=ceiling(world, firsts),
        players=scores,
        notes=[*notes(world, faults, scores), *_notes(told, failures, endpoint)],
        endpoint=told,
    )


def _temperature(endpoint: Endpoint, config: Config) -> float:
    """What the requests asked for: the body's own where it has one; NaN where it leaves the temperature to the endpoint."""
    asked = endpoint.body.get("temperature", config.eval.temperature)
    return float(asked) if isinstance(asked, int | float) else math.nan


def _nothing_left(
    evaluation: EvaluationDirectory, failures: Sequence[str], faults: Sequence[Trajectory]
) -> EnvironmentFault | EndpointFailure | ConfigError:
    if failures:
        return EndpointFailure(
            f"no episode got its replies; the first said: {failures[0]}. Repeat the command to play them again "
            f"('{evaluation.path}' keeps what was asked)"
        )
    if not any(fault.turns for fault in faults) and "prompt is too long" in faults[0].error:
        return ConfigError(faults[0].error)
    return EnvironmentFault(f"all {counted(len(faults), 'episode')} failed; the first said: {faults[0].error}")


def _told(
    played: Iterable[PlayedEpisode], episodes: Sequence[PlayedEpisode], endpoint: Endpoint, failures: Sequence[str]
) -> dict[str, Any]:
    """What the requests of all episodes ever played were and cost, and what was noted of the replies that count."""
    usage = Counter[str]()
    for episode in played:
        usage.update(episode.usage)
    noted = Counter[str]()
    for episode in episodes:
        if not episode.failure:
            noted.update(episode.notes)
    cost = endpoint.cost(usage["prompt_tokens"], usage["completion_tokens"])
    prices = {"price_in": endpoint.price_in, "price_out": endpoint.price_out, "cost": cost} if cost is not None else {}
    return {**asdict(Usage()), **usage, **prices, "failures": len(failures), "replies": dict(noted)}


def _notes(told: Mapping[str, Any], failures: Sequence[str], endpoint: Endpoint) -> list[str]:
    again = f", {told['retries']} of them again" if told["retries"] else ""
    parts = [
        f"endpoint: {counted(told['requests'], 'request')}{again}",
        f"{counted(told['prompt_tokens'], 'token')} sent, {told['completion_tokens']:,} sampled",
    ]
    if told["reasoning_tokens"]:
        parts.append(f"{told['reasoning_tokens']:,} of these reasoning")
    if told["untold"]:
        parts.append(f"{counted(told['untold'], 'answer')} told no token count")
    if "cost" in told:
        parts.append(f"cost {told['cost']:.4g} at {endpoint.price_in:g} and {endpoint.price_out:g} a million tokens")
    said = [" · ".join(parts)]
    if told["replies"]:
        said.append("replies: " + ", ".join(f"{count} {name}" for name, count in sorted(told["replies"].items())))
    if failures:
        said.append(
            f"not counted: {counted(len(failures), 'episode')} got no reply (repeat the command to play them again); "
            f"the first said: {failures[0]}"
        )
    return said
