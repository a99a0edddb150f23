"""From a study to its runs, by hand."""

import pytest
from tests.studies.conftest import TEXT

from ragen.config import Config, load_config
from ragen.config.schema import LossConfig
from ragen.errors import ConfigError
from ragen.studies.grid import plan_study, run_name
from ragen.studies.schema import parse_study


def test_the_grid_is_every_combination_with_every_seed_the_last_axis_fastest(study):
    plan = plan_study(study, "s", "other")
    told = [(dict(v.values), [r.config.seed for r in v.runs], v.runs[0].config.steps) for v in plan.variants]
    seeds = [3, 5, 8]
    assert told == [
        ({"environment": "bandit-rev", "keep": "50"}, seeds, 7),
        ({"environment": "bandit", "keep": "50"}, seeds, load_config("bandit-starpo-grpo-tiny").steps),
    ]
    assert {(v.runs[0].config.loss.clip_high, v.runs[0].config.filter.value) for v in plan.variants} == {(0.28, 0.3)}
    assert len(plan.runs()) == 6


def test_settings_come_from_preset_study_size_and_values_the_later_over_the_earlier(plan):
    first, second = plan.variants
    assert (first.runs[0].config.env["name"], first.runs[0].config.model.name) == ("bandit", "tiny")
    assert (first.runs[0].config.steps, first.runs[0].config.eval.episodes) == (20, 4)
    assert (first.runs[0].config.filter.strategy, second.runs[0].config.filter.strategy) == ("none", "top_fraction")
    assert [run.config.seed for run in second.runs] == [0, 1]
    others = second.runs[0].config.model_copy(update={"filter": first.runs[0].config.filter})
    assert others == first.runs[0].config


def test_fewer_seeds_are_the_first_ones_under_the_same_names(study, plan):
    fewer = plan_study(study, "s", "tiny", seeds=range(1))
    assert set(fewer.runs()) < set(plan.runs())
    assert fewer.seeds == (0,)


def test_a_name_is_made_of_what_is_trained_and_not_of_where_it_is_kept():
    base = ["--env", "bandit"]
    names = [
        run_name(load_config("bandit-starpo-grpo-tiny", [*base, *more]))
        for more in (
            [],
            ["--run.root", "x"],
            ["--run.threads", "7"],
            ["--steps", "3"],
            ["--seed", "1"],
            ["--env.low_reward", "0.1"],
        )
    ]
    assert names[0] == names[1] == names[2]
    assert len(set(names)) == 4
    assert names[0].startswith("bandit-starpo-grpo-seed0-")
    assert names[4].startswith("bandit-starpo-grpo-seed1-")


def test_checkpoints_count_in_a_name_where_a_rollback_returns_to_them():
    trap = ["--echo_trap.action", "rollback", "--echo_trap.window", "4"]
    for more, names in (([], 1), (trap, 2)):
        words = (["--run.checkpoint_every", every, "--run.keep", "4", *more] for every in ("5", "10"))
        assert len({run_name(load_config("bandit-starpo-grpo-tiny", each)) for each in words}) == names


class LaterLoss(LossConfig):
    """The section of a later version, which has one setting more."""

    new: float = 0.5


class Later(Config):
    loss: LaterLoss = LaterLoss()


def test_a_setting_added_later_changes_a_name_only_where_it_is_used():
    now = load_config("bandit-starpo-grpo-tiny")
    values = now.model_dump()
    assert run_name(Later.model_validate(values)) == run_name(now)
    assert run_name(Later.model_validate({**values, "loss": {**values["loss"], "new": 0.7}})) != run_name(now)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{steps: 20}", "{stps: 20}", r"size tiny, environment bandit, keep 100: unknown setting 'stps'.*'steps'"),
        ("{steps: 20}", "{steps: -1}", "size tiny.*setting 'steps' is -1"),
        ("{steps: 20}", "{env.low_rewrd: 1}", "low_reward"),
        ("{steps: 20}", "{eval.also: [bandt]}", "did you mean 'bandit'"),
        ("{steps: 20}", "{eval.episodes: 0}", "eval.episodes is 0"),
        ("{steps: 20}", "{echo_trap.action: rollback, run.keep: 1}", "set run.keep to 2 or more"),
        ("filter.value: 0.5", "filter.value: 5", r"keep 50: filter.value is 5"),
        ('"{environment}-starpo', '"{enviroment}-starpo', "no axis 'enviroment': did you mean 'environment'"),
        ("-starpo-grpo-tiny", "-starpo-gpro-tiny", "unknown preset"),
        (
            '"{environment}-starpo',
            '"{environment-starpo',
            r"preset is '\{environment-starpo.*expected '\}'.*environment, keep\)",
        ),
        ('"{environment}-starpo', '"{environment!z}-starpo', "preset is .*no conversion or format; .AXIS. stands for"),
        ('"{environment}-starpo', '"{environment:>9}-starpo', "no conversion or format"),
        ('"{environment}-starpo', '"}-starpo', "preset is '}-starpo.*Single '}'"),
        ('"{environment}-starpo', '"{}-starpo', "there is no axis ''"),
        ('"{environment}-starpo', '"{environment.x}-starpo', "there is no axis 'environment.x'"),
        ("[success, start,", "[success, 'success:sokoban', start,", r"success:sokoban.*no run is evaluated on 'sokoban'"),
        ("filter.strategy: top_fraction, filter.value: 0.5", "filter.strategy: none, run.keep: 3", "have the same settings"),
    ],
)
def test_wrong_settings_are_refused_before_anything_runs_with_the_combination(old, new, said):
    assert old in TEXT
    study = parse_study(TEXT.replace(old, new), "mine.yaml")
    with pytest.raises(ConfigError, match=said):
        plan_study(study, "mine", "tiny")


def test_a_size_that_is_not_there_names_the_nearest(study):
    with pytest.raises(ConfigError, match="no size 'tny': did you mean 'tiny'"):
        plan_study(study, "s", "tny")


LAYERS = """
title: t
question: q
settings: {loss: {name: gspo, clip_high: 0.001}, advantage: {name: gae, lam: 0.9}, env: frozen_lake, env.size: 5}
axes:
  what:
    same: {}
    loss: {loss: ppo_clip}
    rule: {advantage: grpo}
    env: {env: bandit}
    own: {loss: {clip_low: 0.0005}}
outcomes: [success]
sizes:
  s:
    preset: bandit-starpo-s-ppo-tiny
    seeds: 1
    axes: {what: {same: {}, loss: {}, rule: {}, env: {}, own: {loss: {clip_high: 0.002}}}}
"""


def test_a_later_layer_with_another_loss_rule_or_environment_drops_what_the_earlier_ones_set_for_theirs():
    plan = plan_study(parse_study(LAYERS, "o"), "o")
    configs = {variant.values["what"]: variant.runs[0].config for variant in plan.variants}
    told = {
        what: (c.loss.clip_low, c.loss.clip_high, c.advantage.name, c.advantage.lam, c.env) for what, c in configs.items()
    }
    lake = {"name": "frozen_lake", "size": 5}
    assert told == {
        "same": (3e-4, 0.001, "gae", 0.9, lake),
        "loss": (0.2, 0.2, "gae", 0.9, lake),
        "rule": (3e-4, 0.001, "grpo", 1.0, lake),
        "env": (3e-4, 0.001, "gae", 0.9, {"name": "bandit"}),
        "own": (0.0005, 0.002, "gae", 0.9, lake),
    }
