"""When a stage of the curriculum ends."""

import pytest

from ragen.config import load_config
from ragen.config.collection import CurriculumConfig
from ragen.config.settings import validated
from ragen.errors import ConfigError
from ragen.loops.carried import Carried
from ragen.loops.curriculum import next_stage
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
        ([{"env": {}, "until": 3}], "at least 1 item"),
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
