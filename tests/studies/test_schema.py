"""What a study file may say, and what a mistake in it is told."""

import pytest
from tests.studies.conftest import TEXT

from ragen.errors import ConfigError
from ragen.studies.grid import plan_study
from ragen.studies.schema import load_study, parse_study, shipped


def test_names_of_values_are_texts_and_settings_may_be_left_out(study):
    assert study.axes == {
        "environment": {"bandit": {}, "bandit-rev": {}},
        "keep": {"100": {"filter.strategy": "none"}, "50": {"filter.strategy": "top_fraction", "filter.value": 0.5}},
    }
    assert study.baseline == {"keep": "100"}
    assert study.sizes["tiny"].seeds == (0, 1)
    assert study.sizes["other"].seeds == (3, 5, 8)


def test_a_size_chooses_values_and_lays_its_settings_over_them(study):
    assert list(study.values("environment", "tiny")) == ["bandit"]
    assert list(study.values("keep", "tiny")) == ["100", "50"]
    assert study.values("environment", "other") == {"bandit-rev": {"steps": 7}, "bandit": {}}
    assert study.values("keep", "other") == {
        "50": {"filter": {"strategy": "top_fraction", "value": 0.3}, "loss": {"clip_high": 0.28}}
    }


def test_a_key_that_is_missing_is_named_without_the_rest_of_the_file():
    with pytest.raises(ConfigError) as error:
        parse_study("question: is it?", "mine.yaml")
    assert "setting 'title' is missing (a few words)" in str(error.value)
    assert "is it?" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("question:", "qestion:", "unknown setting 'qestion': did you mean 'question'"),
        ("    seeds: 2", "    sedes: 2", "unknown setting 'sizes.tiny.sedes': did you mean 'seeds'"),
        ("    seeds: 2", "    seeds: 0", "sizes.tiny.seeds"),
        ("    seeds: 2", "    seeds: [1, 1]", "different numbers"),
        ("    seeds: 2", "    seeds: [-1]", "different numbers"),
        ("{keep: 100}\nrows", "{kepe: 100}\nrows", "baseline: there is no axis 'kepe': did you mean 'keep'"),
        ("{keep: 100}\nrows", "{keep: 75}\nrows", "baseline.keep: there is no value '75': known: 100, 50"),
        ("rows: environment", "rows: enviroment", "rows: there is no axis 'enviroment': did you mean 'environment'"),
        ("{environment: [bandit]}", "{environment: [bandt]}", "sizes.tiny.axes.environment: there is no value 'bandt'"),
        ("{environment: [bandit]}", "{env: [bandit]}", "sizes.tiny.axes: there is no axis 'env'"),
        ("[success, start,", "[sucess, start,", "there is no outcome 'sucess': did you mean 'success'"),
        ("last:rollout/entropy", "last:rollout/entrpy", "names no metric: did you mean 'rollout/entropy'"),
        ("last:rollout/entropy", "last", "names no metric"),
        ("last:rollout/entropy", "collapse:3", "write collapse instead"),
        ("last:rollout/entropy", "reach:soon", "such as reach:0.8"),
        ("last:rollout/entropy", "reach", "write reach:LEVEL"),
        *(("last:rollout/entropy", f"reach:{level}", "above 0 and up to 1") for level in ("nan", "inf", "2", "0", "-1")),
        ("last:rollout/entropy", "start", "outcomes: 'start' stands there twice"),
        ("[bandit, bandit-rev]", "[bandit, bandit]", "axes.environment: 'bandit' stands there twice"),
        ("100: {filter.strategy: none}", "50: {}\n    '50': {}", "twice"),
        ("{environment: [bandit]}", "{environment: [bandit, bandit]}", "sizes.tiny.axes.environment: 'bandit' stands there"),
        ("    seeds: 2", "    seeds: [true, 2]", "true and false are no seeds"),
        ("    seeds: 2", "    seeds: true", "true and false are no seeds"),
        ("  other:", "  a/b:", "sizes: 'a/b' is no name of a size"),
        ("  other:", '  "a\\nb":', "sizes: 'a\\nb' is no name of a size"),
        ("  other:", "  ..:", "sizes: '..' is no name of a size"),
        ("{eval.episodes: 4}", "{seed: 3}", "setting 'seed' is 3: a study gives each run its own: say which in seeds"),
        ("{steps: 20}", "{run.name: a}", "setting 'run.name' is 'a': a study names each run"),
        ("{filter.strategy: none}", "{run: {root: b}}", "setting 'run.root' is 'b': a study keeps its runs in one place"),
        ("{filter.value: 0.3,", "{seed: 1,", "setting 'seed' is 1"),
        ("collapse: 100}", "colapse: 100}", "numbers: there is no axis or outcome 'colapse': did you mean 'collapse'"),
        ("keep: 50, success: 0.5", "keep: 60, success: 0.5", "numbers: keep: there is no value '60'"),
        ("[bandit, bandit-rev]", "bandit", "axes.environment is 'bandit': it is a list of names"),
        ("100: {filter.strategy: none}", "100: none", "axes.keep.100 is 'none'"),
        ("title: Filter & <ratio>", "title: ''", "title"),
        ("rows: environment", "rows: [", "not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_is_told_with_its_place_and_the_nearest_name(old, new, said):
    assert old in TEXT
    with pytest.raises(ConfigError) as told:
        parse_study(TEXT.replace(old, new), "mine.yaml")
    assert "mine.yaml" in str(told.value)
    assert said in str(told.value)


@pytest.mark.parametrize("text", ["", "3", "[1]", "sizes: 3", "axes: []\nsizes: {tiny: 3}"])
def test_what_is_no_study_says_so(text):
    with pytest.raises(ConfigError, match=r"mine\.yaml: "):
        parse_study(text, "mine.yaml")


def test_an_unknown_name_or_file_says_where_names_are_listed(tmp_path):
    with pytest.raises(ConfigError, match="ragen study list"):
        load_study("nothing-like-it")
    with pytest.raises(ConfigError, match="cannot read"):
        load_study(tmp_path / "none.yaml")
    (tmp_path / "own.yaml").write_text(TEXT)
    assert load_study(tmp_path / "own.yaml").finding == "F3"


@pytest.mark.parametrize("name", shipped())
def test_every_shipped_study_has_three_sizes_whose_settings_hold(name):
    study = load_study(name)
    assert list(study.sizes) == ["tiny", "small", "paper"]
    assert "not run here" in study.sizes["paper"].note
    for size in study.sizes:
        plan = plan_study(study, name, size)
        assert len(plan.runs()) == len(plan.variants) * len(plan.seeds)
        for run in plan.runs().values():
            assert (run.config.model.name == "tiny") == (size == "tiny")


def test_the_findings_of_the_paper_have_their_studies():
    findings = {part for name in shipped() for part in load_study(name).finding.split(", ")}
    assert findings >= {f"F{number}" for number in range(1, 12)}


def test_runs_that_studies_share_are_the_same_runs():
    """Collapse (F1), early warnings (F2) and StarPO-S (F4) ask about the same plain runs: they are made once."""
    names = {name: set(plan_study(load_study(name), name, "tiny").runs()) for name in ("collapse", "warnings", "starpo-s")}
    assert names["collapse"] == names["warnings"]
    assert names["collapse"] < names["starpo-s"]


def test_the_learning_rates_begin_with_the_presets_and_share_its_runs():
    """Where the rate is the preset's, plain and stable runs are those of the comparison of methods."""
    plan = plan_study(load_study("learning-rate"), "learning-rate", "tiny")
    first = {run.name for variant in plan.variants for run in variant.runs if variant.values["rate"] == "1"}
    assert len(first) == 2 * 5
    assert first <= plan_study(load_study("starpo-s"), "starpo-s", "tiny").runs().keys()


def test_the_leaderboard_trains_nothing_that_the_comparison_of_methods_does_not():
    """At the size that is meant to share its runs: those of StarPO and StarPO-S have the same names in both."""
    board = plan_study(load_study("leaderboard"), "leaderboard", "tiny")
    trained = {run.name for variant in board.variants for run in variant.runs if run.config.steps}
    assert len(trained) == 2 * 3 * 5
    assert trained <= plan_study(load_study("starpo-s"), "starpo-s", "tiny").runs().keys()
