"""A stored episode, played again in the shop, so that its pages can be looked at."""

from ragen.envs.webshop.env import WebShop
from ragen.envs.webshop.sight import Sight
from ragen.episode import Trajectory, Turn
from ragen.errors import EnvironmentFault


def replay(env: WebShop, trajectory: Trajectory) -> tuple[Sight, ...]:
    """What was seen before the first turn and after each: the stored actions from the stored seed, K + 1 sights.

    There are fewer where the stored observation of a turn is another one (other products or rules than the run had), and
    none where the first is: what is shown is what the agent saw.
    """
    env.reset(instance_seed=trajectory.instance_seed, dynamics_seed=0)
    first = env.sight()
    told = trajectory.turns[0].observation if trajectory.turns else first.text + first.goal.instruction
    if first.text not in told or first.goal.instruction not in told:
        return ()
    seen = [first]
    for turn in trajectory.turns:
        if not _repeat(env, turn):
            break
        seen.append(env.sight())
    return tuple(seen)


def _repeat(env: WebShop, turn: Turn) -> bool:
    """Play a turn's actions; whether that led to the observation that is stored."""
    try:
        for action in turn.actions:
            env.step(action)
    except EnvironmentFault:  # an action after the end: no episode of this shop
        return False
    return env.sight().text == turn.info.get("next_observation")
