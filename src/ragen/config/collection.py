"""Settings of what is collected and trained on beyond a batch of fresh episodes: stages of a curriculum, and replay."""

from itertools import pairwise
from typing import Any

from pydantic import Field, field_validator, model_validator

from ragen.config.bounds import COUNT, STEPS
from ragen.config.settings import Settings


class StageConfig(Settings):
    """One stage of a curriculum: environment settings over those of ``env``, and when it ends."""

    env: dict[str, Any] = Field(min_length=1, description="settings of the environment that differ in this stage")
    until: int | None = Field(None, ge=1, le=STEPS, description="the stage ends after this step of the run")
    advance_at: float | None = Field(None, gt=0, le=1, description="the stage ends at this success in training")

    @field_validator("env")
    @classmethod
    def _same_environment(cls, env: dict[str, Any]) -> dict[str, Any]:
        if "name" in env:
            raise ValueError("a stage changes settings of the run's own environment: leave `name` out")
        return env

    @model_validator(mode="after")
    def _ends(self) -> "StageConfig":
        if self.until is None and self.advance_at is None:
            raise ValueError("a stage must end: give `until` (a step), `advance_at` (a success rate), or both")
        return self


class CurriculumConfig(Settings):
    """Easier settings of the environment, or shorter horizons, before the run's own."""

    stages: tuple[StageConfig, ...] = Field(
        (), description="stages before the run's own `env`: each {env: {…}, until: step, advance_at: success}"
    )
    window: int = Field(3, ge=1, le=COUNT, description="steps of a stage over which its success is averaged")

    @field_validator("stages")
    @classmethod
    def _in_order(cls, stages: tuple[StageConfig, ...]) -> tuple[StageConfig, ...]:
        ends = [stage.until for stage in stages if stage.until is not None]
        if any(later <= earlier for earlier, later in pairwise(ends)):
            raise ValueError(f"`until` is {ends} from stage to stage: it counts the run's steps, so each must be larger")
        return stages


class ReplayConfig(Settings):
    """A buffer of groups that trained before, trained on again with their recorded log-probabilities."""

    size: int = Field(0, ge=0, le=COUNT, description="groups kept for replay, the newest; 0 = no replay")
    ratio: float = Field(0.5, gt=0, le=4, description="replayed groups a fresh one that trains (rounded up)")
    max_age: int = Field(4, ge=1, le=STEPS, description="training steps a replayed group is old at most")
