"""When a stage of the curriculum ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.config import load_config
from ragen.config.collection import CurriculumConfig
from ragen.config.settings import validated
from ragen.errors import ConfigError
from ragen.loops.carried import Carried
from ragen.loops.curriculum import next_stage, stages_without_end
from ragen.loops.plan import plan_session

EASY = {"size": 2}
LAKE = {"preset": "frozen_lake-starpo-grpo", "eval.episodes": 0}


def stages_of(curriculum: CurriculumConfig, successes: list[float]) -> list[int]:
    """The stage in which each step is made, 4 groups a step."""
    carried, seen = Carried(), []
    for done, success in enumerate(successes, start=1):
        seen.append(carried.stage)
        carried = Carried(**{name: getattr(carried, name) for name in ("advanced", "successes")}, drawn=4 * done)
        carried = next_stage(carried, curriculum, done=done, success=success)
    return [*seen, carried.stage]


def curriculum(*stages: dict[str, object], window: int = 3) -> CurriculumConfig:
    return validated(CurriculumConfig, {"stages": stages, "window": window})


def test_stages_end_after_their_steps() -> None:
    two = curriculum({"env": EASY, "until": 2}, {"env": {"size": 3}, "until": 3})
    assert stages_of(two, [0.0] * 5) == [0, 0, 1, 2, 2, 2]


def test_a_stage_ends_when_the_mean_of_its_last_steps_reaches_the_threshold() -> None:
    one = curriculum({"env": EASY, "advance_at": 0.5}, window=2)
    assert stages_of(one, [0.9, 0.0, 0.4, 0.6, 0.0]) == [0, 0, 0, 0, 1, 1]  # 0.45, 0.2, 0.5


def test_successes_of_the_stage_before_do_not_count() -> None:
    two = curriculum({"env": EASY, "advance_at": 0.5}, {"env": {"size": 3}, "advance_at": 0.5}, window=2)
    assert stages_of(two, [1.0, 1.0, 1.0, 1.0]) == [0, 0, 1, 1, 2]


def test_whichever_comes_first_ends_a_stage_and_each_has_a_step() -> None:
    both = curriculum({"env": EASY, "advance_at": 0.5, "until": 4}, {"env": {"size": 3}, "until": 5}, window=1)
    assert stages_of(both, [0.0, 0.0, 0.0, 0.0, 0.0]) == [0, 0, 0, 0, 1, 2]
    assert stages_of(both, [1.0, 0.0, 0.0, 0.0, 0.0]) == [0, 1, 1, 1, 1, 2]
    late = curriculum({"env": EASY, "advance_at": 0.5}, {"env": {"size": 3}, "until": 2}, window=1)
    assert stages_of(late, [0.0, 0.0, 1.0, 0.0]) == [0, 0, 0, 1, 2]


def test_histories_of_instances_begin_anew_with_a_stage() -> None:
    one = curriculum({"env": EASY, "until": 2})
    histories = [next_stage(Carried(streaks=(0, 3)), one, done=done, success=0.0).streaks for done in (1, 2)]
    assert histories == [(0, 3), ()]


def test_the_groups_begun_in_each_stage_are_known_afterwards() -> None:
    carried = Carried(drawn=20, advanced=(8, 12))
    assert [list(span) for span in carried.spans()] == [list(range(8)), list(range(8, 12)), list(range(12, 20))]
    assert Carried(drawn=3).spans() == [range(3)]


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([{"env": EASY}], "a stage must end"),
        ([{"env": {}, "until": 3}], "env.* is {}: it must be a mapping .* that is not empty"),
        ([{"env": {"name": "sokoban"}, "until": 3}], "leave `name` out"),
        ([{"env": EASY, "until": 3}, {"env": EASY, "until": 3}], r"\[3, 3\].*each must be larger"),
        ([{"env": EASY, "untill": 3}], r"unknown setting 'curriculum.stages.0.untill': did you mean 'until'"),
    ],
)
def test_impossible_stages_are_refused_with_what_is_allowed(stages: list[dict[str, object]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(LAKE | {"curriculum": {"stages": stages}})


def test_a_stage_with_impossible_settings_is_refused_before_a_model_is_loaded() -> None:
    stages = [{"env": {"size": 3}, "until": 2}, {"env": {"size": 1}, "until": 4}]
    with pytest.raises(ConfigError, match=r"curriculum.stages, stage 2: setting 'env.size' is 1"):
        plan_session(load_config(LAKE | {"curriculum.stages": stages}), env=None)


def test_a_horizon_grows_on_the_command_line() -> None:
    words = ["--curriculum.stages", "[{until: 2, env: {max_turns: 1, max_actions: 2}}]"]
    plan = plan_session(load_config(LAKE, words), env=None)
    assert [world.settings["max_turns"] for world in (*plan.stages, plan.world)] == [1, 5]
    assert [world.settings["max_actions"] for world in (*plan.stages, plan.world)] == [2, 10]


def test_the_first_stage_that_outlasts_the_run_is_told() -> None:
    verbose = {"env": {"wording": "verbose"}}
    config = load_config(LAKE | {"steps": 5, "curriculum.stages": [verbose | {"until": 9}]})
    (told,) = stages_without_end(config)
    assert "stage 1 ends after step 9 at the earliest and steps is 5, so the run's own env would not be trained on" in told
    stages = [verbose | {"until": 2}, verbose | {"advance_at": 0.5}, verbose | {"until": 7}]
    (told,) = stages_without_end(load_config(LAKE | {"steps": 5, "curriculum.stages": stages}))
    assert "stage 2 ends after step 5 at the earliest and steps is 5, so the later stages and the run's own env" in told


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(1, 8)), st.booleans()).filter(lambda stage: stage != (None, False)),
        max_size=4,
    ),
    st.integers(1, 4),
    st.integers(0, 12),
)
def test_a_stage_is_told_exactly_where_full_success_does_not_reach_the_curriculums_end(
    ends: list[tuple[int | None, bool]], window: int, steps: int
) -> None:
    """Against the loop's own rule, played step by step with an agent that always succeeds."""
    stages, until = [], 0
    for further, advances in ends:
        until += further or 0
        stage: dict[str, Any] = {"env": {"wording": "short"}, "advance_at": 0.5 if advances else None}
        stages.append(stage | {"until": until if further else None})
    more = {"curriculum.window": window} if any(advances for _, advances in ends) else {}
    config = load_config(LAKE | {"curriculum.stages": stages, "steps": steps} | more)
    carried = Carried()
    for done in range(1, steps):  # after the last step nothing is played any more
        carried = next_stage(carried, config.curriculum, done=done, success=1.0)
    reached = carried.stage == len(stages)
    assert [told.partition(":")[0] for told in stages_without_end(config)] == (
        ["curriculum"] if steps and not reached else []
    )
