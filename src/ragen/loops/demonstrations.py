"""Demonstrations that the environment's best play makes during RL: those mixed into the update (CHORD)."""

from collections.abc import Iterable, Iterator, Sequence

from ragen.algos.losses import linear_schedule
from ragen.config.schema import Config
from ragen.episode import Segment
from ragen.errors import EnvironmentFault
from ragen.learn.batch import collate_segments
from ragen.learn.imitation import Imitation
from ragen.loops.compose import Agent, World
from ragen.rollout.demonstrations import Player, demonstrate, demonstration_specs, optimal_player, players_of
from ragen.rollout.instances import content_of, started
from ragen.rollout.runner import EpisodeSpec, Rules
from ragen.rollout.segments import segments
from ragen.seeding import derive


def demonstrated(
    specs: Iterable[EpisodeSpec], player: Player, world: World, held_out: frozenset[str], agent: Agent, rules: Rules
) -> tuple[list[Segment], list[str]]:
    """Segments of all sound demonstrations, and what the failed ones said; held-out instances are left out."""
    rows: list[Segment] = []
    faults: list[str] = []
    for spec in specs:
        try:
            if held_out and content_of(world.make, spec.instance_seed) in held_out:
                continue
        except EnvironmentFault as fault:  # nobody can say whether it is held out
            faults.append(str(fault))
            continue
        trajectory = demonstrate(spec, world.make, agent.renderer, rules, player)
        if trajectory.error:
            faults.append(trajectory.error)
        else:
            rows += segments(trajectory)
    return rows, faults


def imitation_coef(config: Config, step: int) -> float:
    """μ of training step ``step`` (from 0); 0 without a mixture."""
    loss = config.loss
    return linear_schedule(step, loss.sft_coef, loss.sft_coef_end, loss.sft_decay_steps)


def mixed_specs(config: Config, world: str, step: int) -> Sequence[EpisodeSpec]:
    """The episodes demonstrated in a training step: fresh ones each step, none where μ is 0."""
    if imitation_coef(config, step) == 0:
        return ()
    return demonstration_specs(
        world, seed=derive(config.seed, "imitation", "step", step), count=config.loss.sft_demonstrations
    )


def mixed_in(
    config: Config, world: World, held_out: frozenset[str], agent: Agent, rules: Rules, step: int
) -> Imitation | None:
    """What the update of a training step imitates; None where μ is 0.

    The best play of ``world``, the run's own whatever the curriculum's stage (what the policy is to learn in the end), in
    this process.

    Raises:
        EnvironmentFault: every demonstration of the step failed.
    """
    specs = mixed_specs(config, world.name, step)
    if not specs:
        return None
    rows, faults = demonstrated(specs, optimal_player, world, held_out, agent, rules)
    if faults and not rows:
        raise EnvironmentFault(f"every demonstration of '{world.name}' failed; the first said: {faults[0]}")
    if not rows:
        return None
    batch = collate_segments(rows, agent.tokenizer.pad_token_id)
    return Imitation(batch, imitation_coef(config, step), config.loss.sft_weighting)


def oracle_problems(config: Config, world: World) -> Iterator[str]:
    """What is wrong where demonstrations are to be mixed in and the environment has no best play to show."""
    if max(config.loss.sft_coef, config.loss.sft_coef_end) == 0:
        return
    if "optimal" not in players_of(started(world.make)):
        yield (
            f"loss.sft_coef is {config.loss.sft_coef}, but '{world.name}' has no oracle to show (its plan() is None): "
            "set loss.sft_coef and loss.sft_coef_end to 0"
        )
