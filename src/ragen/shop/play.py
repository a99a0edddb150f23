"""A person's episodes: the environment an agent has, under the same budgets, with every page that was seen."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock

from ragen.envs.webshop.env import WebShop
from ragen.envs.webshop.sight import Sight
from ragen.episode import Completion, StopReason
from ragen.rollout.contexts import MessageContext
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules

KEPT = 64  # episodes at most; the one not looked at for longest is given up
RULES = Rules(2**31, 2**40, thinking=False)


class Episode:
    """One episode with goal number ``goal``; ``sights`` are the pages so far, the last one the present."""

    def __init__(self, env: WebShop, goal: int) -> None:
        self.goal, self._env = goal, env
        spec = EpisodeSpec("webshop", group=0, member=0, instance_seed=goal, dynamics_seed=0, sampling_seed=0)
        self.runner = EpisodeRunner(spec, env, MessageContext(RULES.context), RULES)
        if self.runner.fault is not None:
            raise self.runner.fault
        self.sights: list[Sight] = [env.sight()]

    @property
    def budget(self) -> int:
        """Actions at most."""
        return min(self._env.settings.max_actions, self._env.settings.max_turns)

    def act(self, at: int, action: str) -> None:
        """Play ``action`` on page ``at``; nothing happens on a page of before, after the end, or with no action of it."""
        if at != len(self.sights) - 1 or self.runner.end is not None or self._env.match(action) is None:
            return
        self.runner.apply(Completion((), (), (), f"<answer>{action}</answer>", StopReason.END))
        if self.runner.fault is not None:
            raise self.runner.fault
        self.sights.append(self._env.sight())


class Episodes:
    """The episodes of a server, by names that cannot be guessed; at most ``kept``."""

    def __init__(self, make: Callable[[], WebShop], kept: int = KEPT) -> None:
        self._make, self._kept = make, kept
        self._lock = Lock()
        self._episodes: OrderedDict[str, Episode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._episodes)

    def begin(self, goal: int) -> str:
        """The name of a new episode with goal number ``goal``."""
        name, episode = secrets.token_urlsafe(9), Episode(self._make(), goal)
        with self._lock:
            self._episodes[name] = episode
            while len(self._episodes) > self._kept:
                self._episodes.popitem(last=False)
        return name

    def find(self, name: str) -> Episode | None:
        """The episode of that name, or None where it is not kept."""
        with self._lock:
            if name in self._episodes:
                self._episodes.move_to_end(name)
            return self._episodes.get(name)

    def act(self, name: str, at: int, action: str) -> None:
        """Play an action in the episode of that name, one at a time (a button may be pressed twice)."""
        episode = self.find(name)
        if episode is not None:
            with self._lock:
                episode.act(at, action)

    def goal(self, number: int) -> Sight:
        """What goal number ``number`` begins with."""
        return Episode(self._make(), number).sights[0]
