"""Every way to give settings, words, files and Python values alike; values that would only fail later are refused."""

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

from ragen.config import Config, load_config
from ragen.config.yaml_text import CoreLoader, parse_yaml
from ragen.envs import environment_factory
from ragen.errors import ConfigError

BASE = "frozen_lake-starpo-s-grpo-small"
FROM_PYTHON: list[tuple[str, Any, Any]] = [
    ("run.name", "😀", "😀"),
    ("run.root", Path("a") / "b", "a/b"),
    ("steps", np.int64(3), 3),
    ("loss.clip_high", np.float32(0.5), 0.5),
    ("loss.clip_high", torch.tensor(0.5), 0.5),
    ("rollout.thinking", np.bool_(0), False),
    ("optim.betas", (0.5, 0.25), (0.5, 0.25)),
    ("optim.betas", np.array([0.5, 0.25]), (0.5, 0.25)),
    ("rollout.stop_strings", ["a", "#b"], ("a", "#b")),
    ("rollout.max_context", None, None),
]


def at(config: Config, key: str) -> Any:
    value: Any = config
    for part in key.split("."):
        value = value[part] if isinstance(value, dict) else getattr(value, part)
    return value


@pytest.mark.parametrize(("key", "given", "kept"), FROM_PYTHON)
def test_python_values_arrive_as_they_are(key: str, given: Any, kept: Any) -> None:
    section, _, last = key.partition(".")
    nested = {section: {last: given}} if last else {section: given}
    for overrides in ({key: given}, nested):
        assert at(load_config(BASE, overrides), key) == kept
        assert at(load_config({"preset": BASE, **overrides}), key) == kept


@pytest.mark.parametrize("key", ["run.root", "steps", "env.size", "rollout.stop_strings"])
@pytest.mark.parametrize("value", [object(), len, {1}, 1j, b"x"])
def test_what_is_no_plain_value_is_named_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"'{key}"):
        load_config(BASE, {key: value})


@pytest.mark.parametrize("key", ["rollout", "optim", "model", "eval", "env"])
def test_a_section_is_laid_over_what_is_there_in_every_source(key: str, tmp_path: Path) -> None:
    change = {"rollout": "groups", "optim": "trajectories", "model": "device", "eval": "episodes", "env": "size"}[key]
    value: Any = "cpu" if key == "model" else 6
    file = tmp_path / "a.yaml"
    file.write_text(f"preset: {BASE}\n{key}: {{{change}: {value}}}\n")
    dotted = tmp_path / "b.yaml"
    dotted.write_text(f"preset: {BASE}\n{key}.{change}: {value}\n")
    wanted = load_config(BASE, [f"--{key}.{change}={value}"])
    assert wanted != load_config(BASE)
    for config in (
        load_config(BASE, {key: {change: value}}),
        load_config(BASE, [f"--{key}", f"{{{change}: {value}}}"]),
        load_config(BASE, [f"{key}.{change}={value}"]),
        load_config({"preset": BASE, key: {change: value}}),
        load_config(file),
        load_config(dotted),
    ):
        assert config == wanted


@pytest.mark.parametrize(("section", "name"), [("env", "sokoban"), ("model", "tiny"), ("advantage", "gae")])
def test_a_section_with_a_name_takes_it_as_a_word_in_every_source(section: str, name: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"preset: {BASE}\n{section}: {name}\n")
    wanted = load_config(BASE, [f"--{section}", name])
    assert at(wanted, f"{section}.name") == name
    for overrides in ({section: name}, {section: {"name": name}}, {f"{section}.name": name}):
        assert load_config(BASE, overrides) == load_config({"preset": BASE, **overrides}) == wanted
    assert load_config(file) == load_config(BASE, [f"--{section}={{name: {name}}}"]) == wanted


def test_the_same_environment_keeps_its_settings_and_another_one_starts_clean() -> None:
    assert load_config(BASE).env == {"name": "frozen_lake-offset", "max_turns": 2}
    assert load_config(BASE, ["--env", "frozen_lake-offset"]).env["max_turns"] == 2
    assert load_config(BASE, {"env": {"name": "bandit"}}).env == {"name": "bandit"}


@pytest.mark.parametrize("text", ["", "~", "null\n", "{}", "# only words\n", "---\n"])
def test_an_empty_file_is_no_run_with_defaults(text: str, tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"empty\.yaml is empty.*preset:"):
        load_config(file)


@pytest.mark.parametrize("text", ["a: &x {b: *x}\n", "a: &x [1, *x]\n", "&x {env: {y: *x}}\n", "env: &x {y: [{z: *x}]}\n"])
def test_an_anchor_that_contains_itself_is_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "loop.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"loop\.yaml.*contains itself"):
        load_config(file)


def test_anchors_that_stand_for_more_than_memory_holds_are_refused_at_once(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30))]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"with its anchors .* written out it holds .* values; 100,000 are the most"):
        load_config(file)


def test_an_anchor_may_be_used_twice(tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text("optim: &a {}\nrollout: *a\nenv: {x: &b [1], y: *b}\n")
    assert load_config(file).env == {"x": [1], "y": [1]}


@pytest.mark.parametrize(
    "source",
    [
        "x" * 5000,
        "a\0b",
        "x" * 5000 + ".yaml",
        "a\0b.yaml",
        "no.yaml",
        "/dev/null/x.yaml",
        "/",
        "/tmp",
        None,
        3,
        [],
        b"x",
        object(),
    ],
)
def test_what_cannot_be_a_source_is_a_message_without_numbers_of_the_system(source: Any) -> None:
    with pytest.raises(ConfigError) as error:
        load_config(source)
    assert "preset" in str(error.value)
    assert "Errno" not in str(error.value)


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("optim.betas", ["[0.9, 1.0]", "[-0.1, 0.9]", "[1.5, 0.9]", "[0.9]"]),
        ("rollout.stop_strings", ["['']", "[a, '']"]),
        ("run.threads", ["100000", "-1"]),
        ("rollout.temperature", ["1e-300", "0", "1e300"]),
        ("eval.temperature", ["1e-300", "-1", "1e300"]),
        ("loss.kl_coef", ["1e300", "-1"]),
        ("loss.entropy_coef", ["1e300"]),
        ("loss.value_coef", ["1e300"]),
        ("loss.length_constant", ["1e-300"]),
        ("rollout.format_penalty", ["-1e308", "0.1"]),
        ("model.name", [""]),
    ],
)
def test_values_that_would_only_fail_later_are_refused_by_name(key: str, values: list[str]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=f"setting '{key}"):
            load_config(BASE, [f"--{key}={value}"])


@pytest.mark.parametrize("value", [0.5, 1.5, 2.5])
def test_top_k_takes_whole_numbers(value: float) -> None:
    with pytest.raises(ConfigError, match=r"filter\.value is .*top_k"):
        load_config(BASE, {"filter.strategy": "top_k", "filter.value": value})
    assert load_config(BASE, {"filter.strategy": "top_k", "filter.value": 2}).filter.value == 2


@pytest.mark.parametrize("name", ["zzz", "qqqqq", "my_env"])
def test_an_environment_like_none_points_at_the_list_instead_of_printing_it(name: str) -> None:
    from ragen.envs import environments

    with pytest.raises(ConfigError, match=r"`ragen envs` lists all") as error:
        environments.get(name)
    assert len(str(error.value)) < 100


def test_a_link_that_leads_nowhere_is_not_the_file_that_was_meant(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").symlink_to("gone")
    (tmp_path / "mine2.yaml").symlink_to("gone")
    with pytest.raises(ConfigError, match="No such file or directory; give a YAML file"):
        load_config(tmp_path / "mine.yaml")


@pytest.mark.parametrize("section", ["", "rollout.", "env."])
def test_of_very_many_unknown_keys_the_first_are_named_and_the_rest_counted(section: str, tmp_path: Path) -> None:
    file = tmp_path / "many.yaml"
    file.write_text(f"preset: {BASE}\n" + "".join(f"{section}key{number}: 1\n" for number in range(2000)))

    def read() -> None:
        environment_factory(load_config(file).env)

    with pytest.raises(ConfigError) as error:
        read()
    lines = str(error.value).splitlines()
    assert [line.partition(":")[0] for line in lines[:15]] == [f"unknown setting '{section}key{n}'" for n in range(15)]
    assert len(lines) == 16
    assert lines[15].startswith("… and 1,985 more")


def test_all_of_a_few_wrong_keys_are_told_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        load_config(BASE, {"step": 1, "rollout.group": 2})
    told = {line.partition(":")[0] for line in str(error.value).splitlines()}
    assert told == {"unknown setting 'step'", "unknown setting 'rollout.group'"}


@pytest.mark.parametrize("section", ["", "rollout.", "a.b."])
def test_the_work_of_reading_settings_grows_as_their_number(section: str) -> None:
    """Counted in lines of Python that run in the modules of ``ragen.config``."""

    def lines(count: int) -> int:
        ran = 0

        def line(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal ran
            ran += event == "line"
            return line

        def call(frame: FrameType, event: str, argument: Any) -> Any:
            return line if "/ragen/config/load" in frame.f_code.co_filename else None

        before = sys.gettrace()
        sys.settrace(call)
        try:
            with pytest.raises(ConfigError):
                load_config({f"{section}key{number}": 1 for number in range(count)})
        finally:
            sys.settrace(before)
        return ran

    assert lines(1600) < 2.5 * lines(800)


def test_keys_of_a_mapping_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    class Key(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)  # type: ignore[no-any-return]

    construct = CoreLoader.construct_object

    def counting(self: CoreLoader, node: Any, deep: bool = False) -> Any:
        made = construct(self, node, deep=deep)
        return Key(made) if isinstance(made, str) else made

    monkeypatch.setattr(CoreLoader, "construct_object", counting)
    assert len(parse_yaml("".join(f"key{number}: 1\n" for number in range(500)), "x")) == 500
    assert compared < 5000
