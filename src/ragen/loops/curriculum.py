"""Stages of a curriculum: easier settings of the environment, or a shorter horizon, before the run's own."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ragen.config.collection import CurriculumConfig
from ragen.config.schema import Config
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


def stages_without_end(config: Config) -> Iterator[str]:
    """The first stage that no success can end before the run does, told at the start: what follows comes only if the run is
    gone on with.
    """
    stages, window, end = config.curriculum.stages, config.curriculum.window, 0
    for number, stage in enumerate(stages, start=1):
        mastered = math.inf if stage.advance_at is None else end + window
        end = int(min(mastered, math.inf if stage.until is None else max(stage.until, end + 1)))
        if end >= config.steps > 0:
            later = "the later stages and the run's own env" if number < len(stages) else "the run's own env"
            yield (
                f"curriculum: stage {number} ends after step {end} at the earliest and steps is {config.steps}, so {later} "
                f"would not be trained on: set steps above {end}, or go on with the run later"
            )
            return
