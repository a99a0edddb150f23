"""The same from Python: ``ragen.train(...)``, ``ragen.evaluate(...)`` and ``ragen.evaluate_api(...)``."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ragen.config import Config, load_config
from ragen.envs import Environment
from ragen.envs.locate import name_of
from ragen.errors import ConfigError
from ragen.loops.compose import Agent, World, build_agent, build_workers, check_workers, world_of
from ragen.loops.endpoint import endpoint_settings, evaluate_endpoint
from ragen.loops.evaluate import evaluate_agent, few_valid, format_note, model_settings
from ragen.loops.result import TrainResult
from ragen.loops.seen import training_notes
from ragen.loops.train import train as run_training
from ragen.metrics.evaluation import EvalReport
from ragen.rollout.runner import EnvironmentFactory
from ragen.runs.directory import find_run
from ragen.runs.evaluations import ROOT, EvaluationDirectory, default_name
from ragen.runs.listener import Listener, Silent
from ragen.runs.listening import listening
from ragen.runs.models import checked_path, find_model
from ragen.samplers.api import ApiSampler
from ragen.samplers.endpoint import Endpoint

Source = str | Path | Mapping[str, Any]
Overrides = Mapping[str, Any] | Sequence[str]
EnvironmentLike = str | type[Environment] | EnvironmentFactory

_ONE_AT_A_TIME = threading.RLock()  # models are loaded through state that threads share, and all cores are in use anyway


def train(
    source: Source,
    settings: Overrides | None = None,
    *,
    env: EnvironmentLike | None = None,
    progress: bool = True,
    listener: Listener | None = None,
    resume: str | Path | None = None,
) -> TrainResult:
    """Train an agent. In a process one call runs at a time: others, from other threads, wait for it.

    Args:
        source: a preset name, a YAML file, or a mapping of settings.
        settings: overrides by dotted key, ``{"steps": 20, "rollout.groups": 4}``, by section,
            ``{"rollout": {"groups": 4}}``, or as words of the command line, ``["--steps", "20"]``.
        env: instead of the source's environment: a registered name, a class of your own (made with the settings ``env.*``
            that ``settings`` holds), a function that makes one, or text ``FILE.py:Class``.
        progress: tell what happens on the console, as the command line does.
        listener: told of every step (``ragen.runs.listener.Silent`` is a base for your own); takes the console's place.
        resume: a run directory to go on with; only settings that its training so far does not depend on may differ.

    Returns:
        What the run came to: its directory, the evaluations before and after, and the metrics of each step made now.

    Raises:
        RagenError: with what to do next, for anything a user can mend.
    """
    config = load_config(source, with_env(settings, env))
    place = None if resume is None else find_run(checked_path("resume", resume))
    with _alone(listener, progress=progress) as told:
        label = Path(source).stem if isinstance(source, str) and env is None else None
        return run_training(config, env=_own(env), listener=told, resume=place, label=label)


def evaluate(
    model: str | Path,
    source: Source | None = None,
    settings: Overrides | None = None,
    *,
    env: EnvironmentLike | None = None,
    name: str = "",
    root: str | Path = ROOT,
    players: bool = True,
    progress: bool = True,
    listener: Listener | None = None,
) -> EvalReport:
    """Evaluate a run, a checkpoint directory, or any Hugging Face causal LM on fixed seeded instances.

    Args:
        model: a run directory or its name, a checkpoint or model directory, or a model's name.
        source: what the settings start from, as in ``train``; without it a run's own, and the defaults for a model.
        settings, env, progress, listener: as in ``train``.
        name: a directory under ``root`` that keeps the episodes, batch by batch, and the report: the same call goes on where
            it was stopped, one with other settings is refused. Without a name nothing is written.
        root: where such directories are.
        players: play the environment's reference players (random, best play, …) on the same instances.

    Returns:
        Success and returns with 95 % intervals, the players' scores, and the outcome of every instance.

    Raises:
        RagenError: with what to do next, for anything a user can mend.
    """
    overrides = with_env(settings, env)
    load_config(source if source is not None else {}, overrides)  # a mistyped setting must not wait for a model
    path, stored = find_model(model)
    if source is None:
        source = {} if stored is None else stored.model_dump(mode="json")
    config = load_config(source, overrides)
    with _alone(listener, progress=progress) as told:
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        world = world_of(config, _own(env))
        check_workers(config, (world,))
        agent = build_agent(path, config.model, config.rollout)
        asked = model_settings(world, config, agent, str(model))
        with _kept(root, name, asked, told) if name else nullcontext() as kept:
            report = _evaluated(agent, world, config, kept, told, label=str(model), players=players)
            few = format_note(report, *few_valid(world, stored, str(model)))
            report = replace(report, notes=(*report.notes, *training_notes(path, stored, config, world), *few))
            if kept is not None:
                kept.write_report(report.to_dict())
        told.on_eval(world.name, report)
    return report


def _evaluated(
    agent: Agent,
    world: World,
    config: Config,
    kept: EvaluationDirectory | None,
    told: Listener,
    *,
    label: str,
    players: bool,
) -> EvalReport:
    told.on_phase(f"evaluate {label} on {world.name}", config.eval.episodes * config.eval.samples)
    with closing(build_workers(config)) as workers:
        asked: Any = {"label": label, "players": players, "progress": told.on_progress, "workers": workers, "kept": kept}
        return evaluate_agent(agent, world, config, **asked)[0]


def evaluate_api(
    model: str,
    api: str | Endpoint,
    source: Source | None = None,
    settings: Overrides | None = None,
    *,
    env: EnvironmentLike | None = None,
    name: str = "",
    root: str | Path = ROOT,
    players: bool = True,
    progress: bool = True,
    listener: Listener | None = None,
) -> EvalReport:
    """Evaluate a model behind an OpenAI-compatible endpoint on the instances that ``evaluate`` plays (docs/evaluation.md).

    Args:
        model: its name at the endpoint.
        api: the endpoint's URL, or an ``Endpoint`` with all that can be said of one. Its key is read from the environment.
        source: what the settings start from, as in ``evaluate``; a run's ``config.yaml`` gives that run's rules.
        settings, env, players, progress, listener: as in ``evaluate``.
        name: the directory under ``root`` that keeps the episodes (default: model and environment). Called again with the
            same settings, an evaluation goes on where it was stopped; with others it is refused.
        root: where such directories are.

    Returns:
        A report as of ``evaluate``; its ``endpoint`` tells what the requests were and what they cost.

    Raises:
        RagenError: with what to do next, for anything a user can mend.
    """
    endpoint = _endpoint(api, model)
    config = load_config(source if source is not None else {}, with_env(settings, env))
    if config.eval.episodes < 1:
        raise ConfigError("eval.episodes is 0: set it to 1 or more to evaluate")
    sampler = ApiSampler(endpoint, model)
    with _alone(listener, progress=progress) as told:
        world = world_of(config, _own(env))
        check_workers(config, (world,))
        asked, label = endpoint_settings(world, config, endpoint, model), f"{model} at {endpoint.host}"
        with _kept(root, name or default_name(model, world.name), asked, told) as evaluation:
            told.on_phase(f"evaluate {model} on {world.name}", evaluation.planned)
            report = evaluate_endpoint(
                sampler, endpoint, world, config, evaluation, label=label, players=players, progress=told.on_progress
            )
            told.on_eval(world.name, report)
    return report


@contextmanager
def _kept(root: str | Path, name: str, asked: Mapping[str, Any], told: Listener) -> Iterator[EvaluationDirectory]:
    """The directory that keeps an evaluation, with word of it."""
    with EvaluationDirectory.begun(root, name, asked) as evaluation:
        told.on_message(f"episodes are kept in {evaluation.path}: the same command goes on after a stop")
        with evaluation.telling_what_is_kept():
            yield evaluation


def _endpoint(api: str | Endpoint, model: object) -> Endpoint:
    """The endpoint; ConfigError for a ``model`` that can be no name there."""
    if not isinstance(model, str) or not model.strip():
        raise ConfigError(f"the model is {model!r}: give the name that it has at the endpoint")
    return api if isinstance(api, Endpoint) else Endpoint(api)


def with_env(settings: Overrides | None, env: EnvironmentLike | None) -> Overrides:
    """The overrides, with the environment that was passed beside them."""
    if settings is None:
        settings = {}
    if isinstance(settings, str) or not (
        isinstance(settings, Mapping) or (isinstance(settings, Sequence) and all(isinstance(word, str) for word in settings))
    ):
        raise ConfigError(
            f"settings is {settings!r}: give a mapping such as {{'steps': 20, 'rollout.groups': 4}}, or command-line words"
        )
    if env is None:
        return settings
    name = env if isinstance(env, str) else name_of(env)
    return {**settings, "env.name": name} if isinstance(settings, Mapping) else [*settings, f"--env.name={name}"]


def _own(env: EnvironmentLike | None) -> type[Environment] | EnvironmentFactory | None:
    return None if isinstance(env, str) else env


@contextmanager
def _alone(listener: Listener | None, *, progress: bool) -> Iterator[Listener]:
    """The only call of this process that runs, with gradients on whatever the caller's mode, and someone to tell."""
    if not isinstance(listener, Listener | None):
        raise ConfigError(f"listener is {listener!r}: extend ragen.runs.listener.Silent and override what you want to hear")
    with _ONE_AT_A_TIME, torch.inference_mode(mode=False), torch.enable_grad():
        if listener is not None or not progress:
            yield listener or Silent()
        else:
            with listening() as console:
                yield console
