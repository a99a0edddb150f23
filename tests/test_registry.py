"""Parts by name: what entry points may give, and what is said where they give something else."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import ragen.registry as module
from ragen.algos.advantages import advantages
from ragen.algos.losses import losses
from ragen.envs import environments
from ragen.errors import ConfigError
from ragen.registry import Registry
from ragen.rewards import process_rewards
from ragen.runs.trackers import trackers

RULES = """
from ragen.algos.advantages import register_advantage
from ragen.envs import Environment
from ragen.rewards import register_process_reward

@register_advantage("median")
def median(rewards, mask):
    return None

@register_process_reward("brief")
def brief(reasoning, actions):
    return 0.0

def bare(rewards, mask):
    return None

class Lock(Environment):
    pass
"""


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Installs the entry points of a package for one registry, which forgets what they gave afterwards."""
    name = f"rules_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(RULES)
    monkeypatch.syspath_prepend(str(tmp_path))
    for registry in (advantages, losses, environments, process_rewards, trackers):
        monkeypatch.setattr(registry, "_items", dict(registry._items))

    def install(registry: Registry[Any], **named: str) -> str:
        found = [EntryPoint(key, f"{name}{value}", registry.group) for key, value in named.items()]
        monkeypatch.setattr(registry, "_entry_points_loaded", False)
        monkeypatch.setattr(module, "entry_points", lambda group: [point for point in found if point.group == group])
        return name

    return install


@pytest.mark.parametrize("value", [":median", ""])
def test_an_entry_point_of_the_registered_name_makes_the_rule_known(points: Any, value: str) -> None:
    points(advantages, median=value)
    assert advantages.get("median").needs == ("rewards", "mask")


@pytest.mark.parametrize(("registry", "registered"), [(advantages, "median"), (process_rewards, "brief")])
def test_another_name_than_the_registered_one_is_refused_with_both(
    points: Any, registry: Registry[Any], registered: str
) -> None:
    place = points(registry, mid=f":{registered}")
    told = (
        rf"entry point 'mid' \({place}:{registered}\) of the group '{registry.group}' loads what is registered as "
        f"'{registered}'.* name the entry point '{registered}', or register it as 'mid'"
    )
    for _ in range(2):  # not only the first time
        with pytest.raises(ConfigError, match=told):
            registry.names()
    assert "mid" not in registry._items


@pytest.mark.parametrize(
    ("registry", "value", "kind"),
    [
        (advantages, ":bare", "function, which is no advantage"),
        (losses, ":bare", "function, which is no loss"),
        (advantages, "", "module, which is no advantage"),
        (environments, ":Lock", "ABCMeta, which is no environment"),
        (trackers, ":Lock", "ABCMeta, which is no tracker"),
        (process_rewards, ":bare", "function, which is no process reward"),
    ],
)
def test_what_is_no_part_of_the_kind_does_not_get_into_the_registry(
    points: Any, registry: Registry[Any], value: str, kind: str
) -> None:
    points(registry, other=value)
    with pytest.raises(ConfigError, match=f"entry point 'other' .* gives a {kind}, and registers none as 'other'"):
        registry.get("absent")
    assert "other" not in registry._items


def test_an_entry_point_that_cannot_be_loaded_is_named(points: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    place = points(advantages, gone=":absent")
    with pytest.raises(ConfigError, match=rf"entry point 'gone' \({place}:absent\).* cannot be loaded: AttributeError"):
        advantages.names()
    points(advantages, leaving=".leaving")
    leaving = f"{place}.leaving"
    monkeypatch.setattr(EntryPoint, "load", lambda self: sys.exit(self.value))
    with pytest.raises(ConfigError, match=rf"entry point 'leaving' \({leaving}\).* cannot be loaded: SystemExit: {leaving}"):
        advantages.names()


def test_a_bare_function_is_a_part_where_functions_are(points: Any) -> None:
    from ragen.algos.filters import filters

    points(filters, mine=":bare")
    try:
        assert filters.get("mine").__name__ == "bare"
    finally:
        filters._items.pop("mine")
