"""What the core install must hold: the real model is converted with it alone (a development install has more)."""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]


def name(requirement: str) -> str:
    return re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0].lower()


def test_g1_reading_gguf_files_needs_what_transformers_asks_for() -> None:
    """transformers refuses a GGUF file without gguf and accelerate, and only peft (an extra) would bring accelerate."""
    core = {name(requirement) for requirement in PROJECT["dependencies"]}
    assert {"torch", "transformers", "gguf", "accelerate"} <= core
    assert not {"peft", "gymnasium", "tensorboard", "matplotlib", "ray", "vllm"} & core


def test_g2_every_dependency_is_pinned_in_the_tested_list() -> None:
    lines = (Path(__file__).parent.parent / "constraints.txt").read_text().splitlines()
    pinned = {line.split("==")[0].lower() for line in lines if "==" in line}
    wanted = {name(r) for r in requires("ragen-rl") or []} - {"ragen-rl"}
    assert wanted <= pinned
