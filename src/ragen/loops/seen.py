"""Whether a run is evaluated on instances that its training may have seen."""

from pathlib import Path

from ragen.config.schema import Config
from ragen.errors import RagenError
from ragen.learn.checkpoint import stored_extra
from ragen.loops.carried import read_carried
from ragen.loops.compose import World, build_world
from ragen.loops.plan import held_out_contents, stage_world, trained_contents
from ragen.rollout.instances import contents, evaluation_specs
from ragen.wording import counted


def training_notes(checkpoint: Path, stored: Config | None, config: Config, world: World) -> tuple[str, ...]:
    """What a reader must know where a run with the settings ``stored`` (None: it is no run) is evaluated in ``world`` on
    instances that its training did not leave out.

    Under other settings than the run's (a variant of its environment, a larger map) most instances could never have come up
    in training: there only those are told of that did, up to ``checkpoint``.
    """
    home = None if stored is None else _trained_world(stored, world)
    if stored is None or home is None:
        return ()
    specs = evaluation_specs("", episodes=config.eval.episodes, samples=1, seed=config.eval.seed)
    played = contents(world.make, specs)
    others = (build_world({"name": name}) for name in stored.eval.also)
    loose = played - held_out_contents(stored, (home, *others))
    alike = home.settings == world.settings
    if loose and not alike:
        loose &= _trained_on(checkpoint, stored, home)
    if not loose:
        return ()
    some = f"{len(loose)} of {counted(len(played), 'initial state')} {'was' if len(loose) == 1 else 'were'}"
    if alike:
        return (f"{some} not kept out of this run's training: it may have seen them",)
    return (f"{some} met in this run's training, under the settings it had there",)


def _trained_world(stored: Config, world: World) -> World | None:
    """The world that the run was trained in, if it is the environment of ``world``, in whatever settings."""
    if stored.env == world.spec:
        return world
    try:
        home = build_world(stored.env)
    except RagenError:  # the file it lies in is gone, for example
        return None
    return home if type(home.make()) is type(world.make()) else None


def _trained_on(checkpoint: Path, stored: Config, home: World) -> frozenset[str]:
    """Content keys of what the run had trained on at its checkpoint; none where that does not tell."""
    try:
        step = int(stored_extra(checkpoint).get("step", 0))
        carried = read_carried(checkpoint, step)
    except RagenError:
        return frozenset()
    stages = [stage_world(stored, number, None) for number in range(len(stored.curriculum.stages))]
    return trained_contents(stored, home, stages, carried, step)
