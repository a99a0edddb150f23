"""An agent's stored episodes, made into pages when they are looked at."""

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

from ragen.envs.webshop.env import WebShop
from ragen.envs.webshop.replay import replay
from ragen.envs.webshop.sight import Sight
from ragen.episode import Trajectory
from ragen.runs.events import StoredTrajectory


@dataclass(frozen=True, slots=True)
class Recorded:
    """An episode with its pages: K + 1 for its K turns, or fewer where the shop's pages are not those of the run."""

    item: StoredTrajectory
    sights: tuple[Sight, ...]

    @property
    def trajectory(self) -> Trajectory:
        """What was recorded."""
        return self.item.trajectory

    def text(self, at: int) -> str:
        """What the agent was told before turn ``at`` (from 0), or after the last one for ``at`` = K."""
        turns = self.trajectory.turns
        if not turns:
            return ""
        return turns[0].observation if at == 0 else str(turns[at - 1].info.get("next_observation", ""))


class Records:
    """Episodes of a step, by their place in ``items``; ``about`` names run and step."""

    def __init__(self, env: WebShop, items: Sequence[StoredTrajectory], about: str) -> None:
        self._env, self.items, self.about = env, tuple(items), about
        self._lock = Lock()
        self._made: dict[int, Recorded] = {}

    def recorded(self, place: int) -> Recorded:
        """The episode at ``place``, replayed when it is first asked for."""
        with self._lock:
            if place not in self._made:
                item = self.items[place]
                self._made[place] = Recorded(item, replay(self._env, item.trajectory))
            return self._made[place]
