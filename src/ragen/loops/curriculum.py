"""Stages of a curriculum: easier settings of the environment, or a shorter horizon, before the run's own."""

from collections.abc import Sequence
from dataclasses import replace

from ragen.config.collection import CurriculumConfig
from ragen.loops.carried import Carried


def next_stage(carried: Carried, curriculum: CurriculumConfig, *, done: int, success: float) -> Carried:
    """What is carried on after step number ``done`` (from 1), whose episodes succeeded at this rate.

    A stage ends after the step ``until``, or when its mean success over ``window`` steps reaches ``advance_at``; at most one
    stage a step. The histories of instances begin anew with a stage: under other settings they are other instances.
    Sources: stages of growing difficulty or interaction, AgentGym-RL's ScalingInter-RL (arXiv 2509.08755), by steps;
    AdaRFT (arXiv 2504.05520), by the mean reward. Deviation from AdaRFT: stages, no target difficulty that moves both ways.
    """
    if carried.stage >= len(curriculum.stages):
        return carried
    stage = curriculum.stages[carried.stage]
    successes = (*carried.successes, success)[-curriculum.window :]
    if _is_over(done, stage.until) or _is_mastered(successes, curriculum.window, stage.advance_at):
        return replace(carried, advanced=(*carried.advanced, carried.drawn), successes=(), streaks=())
    return replace(carried, successes=successes)


def _is_over(done: int, until: int | None) -> bool:
    return until is not None and done >= until


def _is_mastered(successes: Sequence[float], window: int, threshold: float | None) -> bool:
    return threshold is not None and len(successes) == window and sum(successes) / window >= threshold
