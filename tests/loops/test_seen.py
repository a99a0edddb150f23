"""A run evaluated under other settings is told which of the instances its training met there."""

import json
from pathlib import Path
from typing import Any

import pytest

from ragen.config import load_config
from ragen.loops.carried import Carried
from ragen.loops.compose import world_of
from ragen.loops.plan import held_out_contents
from ragen.loops.seen import training_notes
from ragen.rollout.instances import contents, evaluation_specs, training_specs

FEW = {"size": 2, "frozen": 0.5}  # a handful of maps
SAME_MAPS = {"env": {"name": "frozen_lake-det", **FEW}}


def run_of(place: Path, drawn: int) -> Any:
    """The settings of a run that has begun so many groups, and its checkpoint."""
    (place / "state.json").write_text(json.dumps({"extra": {"step": 20, "carried": Carried(drawn=drawn).record()}}))
    stored = load_config("frozen_lake-starpo-s-grpo", {"eval.episodes": 6, "env": FEW})
    return stored.model_copy(update={"env": dict(world_of(stored).spec)})


def met(stored: Any, config: Any, drawn: int) -> tuple[int, int]:
    """By brute force: how many of the initial states of this evaluation the run's groups began in, and of how many."""
    home, world = world_of(stored), world_of(config)
    held_out = held_out_contents(stored, (home,))
    specs = training_specs("x", home.make, seed=0, first=0, instances=range(drawn), members=1, held_out=held_out)
    asked = evaluation_specs("", episodes=config.eval.episodes, samples=1, seed=config.eval.seed)
    played = contents(world.make, asked)
    return len(played & contents(home.make, specs)), len(played)


@pytest.mark.parametrize(
    "change",
    [{**SAME_MAPS, "eval.seed": 7}, {"env.frozen": 0.7}, {"env.frozen": 0.7, "eval.seed": 3}],
    ids=["a variant that shows the same maps", "the run's own seed, other maps", "another seed, other maps"],
)
def test_instances_of_other_settings_that_training_met_are_told(tmp_path: Path, change: dict[str, Any]) -> None:
    """A variant was never looked at, and under other settings the run's own seed counted as held out: nothing was said."""
    stored = run_of(tmp_path, 160)
    config = load_config(stored.model_dump(mode="json"), change)
    shared, played = met(stored, config, 160)
    assert shared > 0
    (note,) = training_notes(tmp_path, stored, config, world_of(config))
    assert note.startswith(f"{shared} of {played} initial state")
    assert "met in this run's training" in note


@pytest.mark.parametrize(
    ("change", "drawn"),
    [({}, 160), (SAME_MAPS, 160), ({**SAME_MAPS, "eval.seed": 7}, 0), ({"env.size": 5}, 160), ({"env": "bandit"}, 160)],
    ids=["its own evaluation", "the same maps shown otherwise", "no step done", "larger maps", "another environment"],
)
def test_nothing_is_told_where_training_met_none(tmp_path: Path, change: dict[str, Any], drawn: int) -> None:
    stored = run_of(tmp_path, drawn)
    config = load_config(stored.model_dump(mode="json"), change)
    assert training_notes(tmp_path, stored, config, world_of(config)) == ()
