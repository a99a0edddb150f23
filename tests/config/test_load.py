"""Sources, overrides and their errors."""

import math

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from ragen.config import Config, load_config, preset_names
from ragen.config.load import parse_overrides
from ragen.config.paths import ENV_COMMON, fields
from ragen.config.settings import validated
from ragen.config.yaml_text import dump_yaml, parse_yaml
from ragen.envs import environments
from ragen.envs.base import EnvSettings
from ragen.envs.frozen_lake import FrozenLakeSettings
from ragen.envs.sql import SqlSettings
from ragen.errors import ConfigError
from ragen.metrics.echo_trap import TrapSettings

BASE = "bandit-starpo-s-grpo"


def loaded(*words: str) -> Config:
    return load_config(BASE, words)


@pytest.mark.parametrize("words", [("--seed", "7"), ("--seed=7",), ("seed=7",)])
def test_three_ways_to_write_an_override(words):
    assert loaded(*words).seed == 7


@pytest.mark.parametrize(
    ("text", "value"), [("1e-4", 1e-4), ("1E-4", 1e-4), ("5e-05", 5e-5), (".001", 0.001), ("2", 2.0), ("+1.5e2", 150.0)]
)
def test_scientific_notation_is_a_number(text, value):
    got = loaded("--optim.learning_rate", text).optim.learning_rate
    assert isinstance(got, float)
    assert got == value


def test_scientific_notation_is_a_number_for_environment_settings_too():
    assert loaded("--env.slip", "1e-1").env["slip"] == 0.1


def test_c13_null_stays_null_and_is_never_the_text_none():
    assert loaded("--rollout.max_trajectory_tokens", "null").rollout.max_trajectory_tokens is None
    assert loaded("--env.low_name", "null").env["low_name"] is None
    with pytest.raises(ConfigError, match=r"'run.name' is null"):
        loaded("--run.name", "null")


def test_lists_are_lists_and_negative_numbers_are_values():
    config = loaded("--rollout.stop_strings", "[a, b]", "--rollout.format_penalty", "-0.5", "--optim.betas=[0.8, 0.9]")
    assert config.rollout.stop_strings == ("a", "b")
    assert config.rollout.format_penalty == -0.5
    assert config.optim.betas == (0.8, 0.9)


@pytest.mark.parametrize(
    "text",
    ["2024", "1e5", "true", "2024-01-02", "#7", "yes", "a: b", "@x", "", "[x]", "it's", "run #1", "&a", "&a x", "!!null x"],
)
def test_a_text_setting_keeps_the_text_as_typed(text):
    assert loaded(f"--run.name={text}").run.name == text


@pytest.mark.parametrize("text", ["a: b", "- a", "&a", "&a x", "@x", "012", "+5", "a: [b", "2024-01-02"])
def test_an_environment_is_given_the_text_as_typed(text):
    assert loaded("--env.file", text).env["file"] == text
    assert loaded(f"--env.file={text}").env["file"] == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("{a: b}", {"a": "b"}), (" [1, 2]", [1, 2]), ("5", 5), ("-5 # rows", -5), ("0.50", 0.5), ("~", None), ("true", True)],
)
def test_an_environment_is_given_what_yaml_says_of_plain_numbers_and_brackets(text, value):
    assert loaded(f"--env.file={text}").env["file"] == value


def test_a_number_is_a_text_where_the_environments_setting_is_one_and_a_number_where_it_is_that():
    spec = loaded("--env", "sokoban", "--env.level_file", "12", "--env.max_turns", "012").env
    settings = environments.get("sokoban").settings({key: value for key, value in spec.items() if key != "name"})
    assert (settings.model_dump()["level_file"], settings.max_turns) == ("12", 12)
    with pytest.raises(ConfigError, match=r"env\.level_file.*it must be a text"):
        environments.get("sokoban").settings({"level_file": ["12"]})


@pytest.mark.parametrize("text", ["env: 2048", "env: {name: 2048}", "env.name: 2048", "env: '2048'"])
def test_an_environment_may_be_called_by_a_number(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(f"preset: {BASE}\n{text}\n")
    assert load_config(path).env == {"name": "2048"}
    assert load_config(path, ["--env", "2048", "--env.max_turns", "3"]).env == {"name": "2048", "max_turns": 3}
    for wrong in ("env: true", "env: [2048]"):
        path.write_text(f"preset: {BASE}\n{wrong}\n")
        with pytest.raises(ConfigError, match="it must be a mapping"):
            load_config(path)


def test_a_hash_begins_no_comment_on_a_command_line_and_quotes_are_yamls():
    config = loaded("--env.file", "my #1.jsonl", "--model", "dir/a #2", "--warmup.data=b #3.jsonl", "--run.name", "'a #b'")
    assert (config.env["file"], config.model.name) == ("my #1.jsonl", "dir/a #2")
    assert config.warmup.data.endswith("/b #3.jsonl")
    assert config.run.name == "a #b"
    assert loaded("--env.size", "5 # rows").env["size"] == 5


@pytest.mark.parametrize(
    ("cls", "wrong"),
    [
        (EnvSettings, {"max_turns": True}),
        (FrozenLakeSettings, {"success_rate": True}),
        (SqlSettings, {"levels": [True, 2]}),
        (Config, {"loss": {"dual_clip": True}}),
        (Config, {"optim": {"betas": [False, 0.9]}}),
        (Config, {"curriculum": {"stages": [{"env": {"size": 4}, "until": True}]}}),
    ],
)
def test_a_switch_is_no_number_wherever_it_stands(cls, wrong):
    with pytest.raises(ConfigError, match=r"(?:true|True|False).*: it must be a "):
        validated(cls, wrong)
    assert validated(FrozenLakeSettings, {"corners": True}).corners


def test_sections_with_a_name_take_it_directly():
    config = loaded("--env", "sokoban", "--model", "tiny", "--advantage", "gae", "--env.max_turns", "3")
    assert config.env == {"name": "sokoban", "max_turns": 3}
    assert config.model.name == "tiny"
    assert config.advantage.name == "gae"


def test_another_environment_drops_the_settings_meant_for_the_first_but_keeps_those_given_beside_it():
    config = load_config("frozen_lake-starpo-grpo-small", ["--env.max_turns", "4", "--env", "sokoban"])
    assert config.env == {"name": "sokoban", "max_turns": 4}


def test_nested_environment_settings_reach_the_environment_untouched():
    assert loaded("--env.symbols.wall", "#").env["symbols"] == {"wall": "#"}


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("clip_hihg=0.28", "loss.clip_high"),
        ("algorithm.clip_hihg=.28", "loss.clip_high"),
        ("optim.lr=1", "optim.learning_rate"),
        ("rollout.max_turns=3", "env.max_turns"),
        ("filter.strategy.x=2", "filter.strategy"),
        ("lora.rank=4", "model.lora.rank"),
        ("group=4", "rollout.groups"),
        ("lr=1e-4", "optim.learning_rate"),
        ("learning_rate=1e-4", "optim.learning_rate"),
    ],
)
def test_g5_g12_an_unknown_key_ends_with_the_nearest_one(word, hint):
    with pytest.raises(ConfigError) as error:
        loaded(word)
    assert word.split("=")[0] in str(error.value)
    assert f"did you mean '{hint}'" in str(error.value)


def test_g5_equally_near_keys_are_all_named():
    with pytest.raises(ConfigError, match=r"'optim.learning_rate' or 'warmup.learning_rate'"):
        loaded("learning_rate=1")


def test_g5_a_key_like_nothing_points_at_the_list():
    with pytest.raises(ConfigError, match=r"docs/settings.md"):
        loaded("qqq.zzz=1")


def test_g5_unknown_keys_in_a_file_and_in_a_mapping_are_errors_too(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("loss:\n  clip_hihg: 0.3\n")
    for source in (path, str(path), {"loss": {"clip_hihg": 0.3}}):
        with pytest.raises(ConfigError, match=r"did you mean 'loss.clip_high'"):
            load_config(source)


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("filter.strategy=top_fracton", ["filter.strategy", "top_fracton", "did you mean 'top_fraction'"]),
        ("steps=-1", ["steps", "-1", "a whole number of at least 0"]),
        (
            "steps=three",
            ["steps", "'three'", "it must be a whole number of at least 0 and at most 1,000,000,000 (training iterations)"],
        ),
        ("steps=1.5", ["steps", "1.5", "it must be a whole number"]),
        ("steps=true", ["steps", "a whole number"]),
        ("optim.learning_rate=.nan", ["optim.learning_rate", "nan", "it must be a number above 0"]),
        ("optim=3", ["optim", "3", "it must be a mapping of settings {learning_rate: …, "]),
        ("rollout.members=1", ["rollout.members is 1", "filter.strategy"]),
        ("reward.coef=-1", ["reward.coef", "-1", "a number of at least 0 and at most 1,000,000"]),
        ("reward.overlong_buffer=257", ["reward.overlong_buffer is 257", "at most 256 tokens", "rollout.max_new_tokens"]),
    ],
)
def test_g7_an_impossible_value_names_key_value_and_what_is_allowed(word, parts):
    with pytest.raises(ConfigError) as error:
        loaded(word)
    for part in parts:
        assert part in str(error.value)


@pytest.mark.parametrize("words", [("steps",), ("--steps",), ("--steps", "--seed", "1"), ("--",), ("=3",)])
def test_a_malformed_override_says_how_to_write_one(words):
    with pytest.raises(ConfigError, match=r"--"):
        loaded(*words)


def test_a_file_begins_from_a_preset_and_its_own_lines_win(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("preset: bandit-starpo-s-grpo\nsteps: 3\noptim:\nloss:\n  clip_high: 3e-1\nenv: {pull: 2}\n")
    config = load_config(path, ["--seed", "4"])
    assert (config.steps, config.seed, config.loss.clip_high, config.loss.clip_low) == (3, 4, 0.3, 0.2)
    assert config.filter.strategy == "top_fraction"
    assert config.env == {"name": "bandit", "pull": 2}


def test_another_environment_is_not_evaluated_on_what_was_chosen_beside_the_first():
    preset = "frozen_lake-starpo-s-grpo-small"
    beside = ("frozen_lake-offset-blindfail",)
    assert load_config(preset).eval.also == beside
    other = load_config(preset, {"env": "sokoban"})
    assert (other.eval.also, other.eval.episodes) == ((), 128)
    assert load_config(preset, {"env": "frozen_lake-offset"}).eval.also == beside
    assert load_config(preset, {"env.success_rate": 1.0}).eval.also == beside
    both = {"env": "sokoban", "eval.also": ["sokoban-large"]}
    assert load_config(preset, both).eval.also == ("sokoban-large",)


def test_a_file_that_names_another_environment_than_its_preset_starts_that_one_clean(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("preset: frozen_lake-starpo-s-grpo-small\nenv: sokoban\n")
    assert load_config(path).env == {"name": "sokoban"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: [", "line"),
        ("- 1\n- 2\n", "mapping"),
        ("steps: 1\nsteps: 2\n", "'steps' is written twice"),
        ("preset: 3\n", "preset is 3"),
        ("x: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
    ],
)
def test_h11_a_bad_file_is_refused_with_its_name(tmp_path, text, part):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert "bad.yaml" in str(error.value)
    assert part in str(error.value)


@pytest.mark.parametrize(
    "source", ["no-such.yaml", "bandit", "starpo-grpo", "bandit-starpo-sgrpo", "bandit-starpo-grpo-big", ""]
)
def test_an_unknown_source_says_what_a_source_is(source):
    with pytest.raises(ConfigError, match=r"preset"):
        load_config(source)


def test_the_nearest_preset_is_named():
    with pytest.raises(ConfigError, match=r"did you mean 'frozen_lake-starpo-s-grpo'"):
        load_config("frozen_lake-starpo-sgrpo")


def test_any_environment_makes_a_preset_name():
    own = load_config("frozen_lake-8-starpo-s-ppo-small")
    assert own.env == {"name": "frozen_lake-8", "max_turns": 2}  # the family's values, not its choice of variant or test set
    assert own.eval.also == ()
    assert load_config("frozen_lake-starpo-s-ppo-small").env["name"] == "frozen_lake-offset"
    assert load_config("bandit-rev-starpo-grpo").env == {"name": "bandit-rev"}
    assert len(set(preset_names(["a", "b"]))) == 2 * 4 * 3


def test_every_preset_loads():
    for name in preset_names():
        assert load_config(name).env["name"].startswith(name.split("-")[0])


def test_a_resolved_config_written_as_yaml_reads_back_equal(tmp_path):
    config = loaded("--run.name", "1e5", "--env.x", "null", "--env.y", "no", "--optim.learning_rate", "1e-7")
    path = tmp_path / "config.yaml"
    path.write_text(dump_yaml(config.model_dump(mode="json")))
    assert load_config(path) == config
    assert yaml.safe_load(path.read_text())["run"]["name"] == "1e5"


def test_hints_for_environment_settings_name_what_environments_have():
    assert set(ENV_COMMON) <= set(EnvSettings.model_fields)


@example("a\x85b").via("folded once")
@example("\u2028").via("folded once")
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), lambda x: st.lists(x, max_size=3)
    )
)
def test_yaml_written_is_yaml_read(value):
    text = dump_yaml({"x": value})
    assert parse_yaml(text, "here") == {"x": value}


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_every_printed_float_is_read_as_that_float(value):
    assert parse_overrides([f"--loss.kl_coef={value!r}"]) == [("loss.kl_coef", value)]
    assert math.isfinite(value)


def test_every_default_is_a_valid_value():
    for key, field in fields().items():
        assert field.description, key
    assert validated(Config, {}) == Config()


def test_e_is_never_more_than_the_trajectories_of_a_batch():
    config = loaded("--rollout.groups", "2", "--rollout.members", "3")
    assert config.optim.trajectories == 6
    assert loaded().optim.trajectories == 32


ROLLBACK = ("--echo_trap.action", "rollback", "--run.checkpoint_every", "2", "--run.keep", "6")


def test_a_rollback_needs_checkpoints_from_before_what_gave_the_warning():
    """They must reach 2 · window = 10 steps back from any step: 9 steps behind the newest one, of every second step."""
    assert loaded(*ROLLBACK).echo_trap.action == "rollback"
    with pytest.raises(ConfigError, match=r"run.keep to 6 or more"):
        loaded(*ROLLBACK, "--run.keep", "5")
    with pytest.raises(ConfigError, match=r"run.checkpoint_every is 0.*echo_trap.action to 'stop'"):
        loaded(*ROLLBACK, "--run.checkpoint_every", "0")
    assert loaded("--echo_trap.action", "stop", "--run.checkpoint_every", "0").run.checkpoint_every == 0


@pytest.mark.parametrize(("strategy", "value"), [("none", "0.5"), ("soft", "0.5"), ("top_p", "2"), ("top_k", "1.5")])
def test_the_filter_value_of_a_rollback_must_fit_the_strategy(strategy, value):
    start = {"top_k": "4", "top_p": "0.9"}.get(strategy, "1")
    words = (*ROLLBACK, "--filter.strategy", strategy, "--filter.value", start, "--echo_trap.filter_value", value)
    with pytest.raises(ConfigError, match=r"echo_trap.filter_value is"):
        loaded(*words)


def test_the_detector_and_its_settings_have_the_same_defaults():
    own, trap = TrapSettings(), Config().echo_trap
    assert (own.window, own.drop, own.spike, own.solved) == (trap.window, trap.drop, trap.spike, trap.solved)


def test_a_process_reward_needs_thinking():
    assert loaded("--reward.process", "plan_agreement").reward.process == "plan_agreement"
    with pytest.raises(ConfigError, match=r"'plan_agreement' reads the reasoning, but rollout.thinking is false: set"):
        loaded("--reward.process", "plan_agreement", "--rollout.thinking", "false")
    assert loaded("--rollout.thinking", "false", "--reward.overlong_buffer", "256").reward.overlong_buffer == 256
