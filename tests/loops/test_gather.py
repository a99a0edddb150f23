"""What a step collects: instances by number, resampling with a bound, histories, stages; nothing held out ever enters."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ragen.config import load_config
from ragen.envs import environment_factory
from ragen.envs.workers import InTurn
from ragen.episode import Completion, EndReason, Group, StopReason, Trajectory, Turn
from ragen.errors import ConfigError
from ragen.loops import gather as module
from ragen.loops.carried import Carried
from ragen.loops.gather import Gathered, gather, gather_metrics
from ragen.loops.step import filter_groups, filter_metrics, members_of
from ragen.rollout.collect import Collection
from ragen.rollout.instances import contents, evaluation_specs
from ragen.rollout.runner import EpisodeSpec
from ragen.seeding import derive

Fate = Callable[[int], str]  # group number → "live", "flat" or "lost"


class Played:
    """Stands for ``collect``: groups end as ``fate`` says; remembers what it was asked for."""

    def __init__(self, fate: Fate) -> None:
        self.fate = fate
        self.calls: list[list[EpisodeSpec]] = []
        self.options: list[dict[str, Any]] = []
        self.worlds: list[Any] = []

    def __call__(self, sampler: Any, renderer: Any, make: Any, specs: Sequence[EpisodeSpec], **options: Any) -> Collection:
        self.calls.append(list(specs))
        self.options.append(options)
        self.worlds.append(make)
        groups: dict[int, list[Trajectory]] = {}
        errors = []
        for spec in specs:
            fate = self.fate(spec.group)
            reply = Completion((1,), (-1.0,), (1.0,), "", StopReason.END)
            turn = Turn((2,), True, reply, "", (), True, float(spec.member if fate == "live" else 0))
            end = EndReason.ERROR if fate == "lost" else EndReason.TERMINATED
            trajectory = Trajectory(spec.env, spec.instance_seed, spec.member, (turn,), end, False)
            if fate == "lost":
                errors.append(trajectory)
            else:
                groups.setdefault(spec.group, []).append(trajectory)
        return Collection(tuple(Group(i, tuple(ts)) for i, ts in groups.items()), tuple(errors))

    @property
    def numbers(self) -> list[list[int]]:
        return [list(dict.fromkeys(spec.group for spec in call)) for call in self.calls]


def session(monkeypatch: pytest.MonkeyPatch, fate: Fate, held_out: frozenset[str] = frozenset(), **settings: Any) -> Any:
    given = {"preset": "frozen_lake-starpo-grpo", "rollout.groups": 4, "rollout.members": 2, "optim.trajectories": 8}
    config = load_config(given | settings)
    played = Played(fate)
    monkeypatch.setattr(module, "collect", played)
    make = environment_factory(config.env)
    world = SimpleNamespace(name="lake", make=make)
    stages = tuple(
        SimpleNamespace(name="lake", make=environment_factory({**config.env, **stage.env}))
        for stage in config.curriculum.stages
    )
    agent = SimpleNamespace(sampler=None, renderer=None)
    return SimpleNamespace(
        config=config,
        world=world,
        stages=stages,
        agent=agent,
        rules=None,
        workers=InTurn(),
        held_out=held_out,
        played=played,
    )


def steps(s: Any, count: int) -> list[Gathered]:
    carried, found = Carried(), []
    for _ in range(count):
        found.append(gather(s, carried))
        carried = found[-1].carried
    return found


def test_without_options_each_step_plays_the_next_groups_live_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(monkeypatch, lambda group: "flat" if group % 2 else "live")
    found = steps(s, 3)
    assert s.played.numbers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert [spec.instance_seed for spec in s.played.calls[1][::2]] == [
        derive(0, "train", "instance", number, 0) for number in (4, 5, 6, 7)
    ]
    assert found[0].flat.tolist() == [False, True, False, True]
    assert found[0].candidates == found[0].collection.groups
    assert gather_metrics(found[0], s.config) == {"collect/groups": 4.0, "collect/batches": 1.0}
    assert not s.played.options[0]["all_may_fail"]


def test_as_many_groups_are_collected_again_as_are_flat_or_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    fates = {1: "flat", 2: "lost", 5: "flat"}
    s = session(monkeypatch, lambda group: fates.get(group, "live"), **{"rollout.resample": 5})
    found = gather(s, Carried())
    assert s.played.numbers == [[0, 1, 2, 3], [4, 5], [6]]
    assert [group.index for group in found.candidates] == [0, 3, 4, 6]
    assert (found.batches, len(found.collection.groups), len(found.collection.errors)) == (3, 6, 2)
    assert [options["all_may_fail"] for options in s.played.options] == [False, True, True]
    metrics = filter_metrics(4, found)
    assert metrics == {
        "filter/kept_groups": 4.0,
        "filter/kept_fraction": pytest.approx(4 / 6),
        "filter/flat_groups": pytest.approx(2 / 6),
    }
    gather(s, found.carried)
    assert s.played.numbers[3] == [7, 8, 9, 10]  # the next step meets new ones


def test_resampling_is_bounded_and_everything_flat_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(monkeypatch, lambda group: "flat", **{"rollout.resample": 2})
    found = gather(s, Carried())
    assert [len(numbers) for numbers in s.played.numbers] == [4, 4, 4]
    assert (found.batches, found.candidates, found.carried.drawn) == (3, (), 12)
    for strategy, value in (
        ("none", 1.0),
        ("top_fraction", 0.5),
        ("top_p", 0.5),
        ("top_k", 2),
        ("min_p", 0.5),
        ("soft", 1.0),
    ):
        config = load_config({"preset": "bandit-starpo-grpo", "filter": {"strategy": strategy, "value": value}})
        assert filter_groups(found.candidates, config).kept.tolist() == []


def test_flatness_is_judged_by_the_returns_the_filter_ranks_by(monkeypatch: pytest.MonkeyPatch) -> None:
    penalty = Turn((2,), True, Completion((1,), (-1.0,), (1.0,), "", StopReason.END), "", (), False, 0.0, -0.1)
    for returns, live in (("task", 0), ("total", 4)):
        s = session(monkeypatch, lambda group: "flat", **{"rollout.resample": 1, "filter.returns": returns})
        honest = s.played.__call__

        def with_penalties(*args: Any, inner: Any = honest, **options: Any) -> Collection:
            groups = inner(*args, **options).groups
            first = [
                Trajectory("lake", 0, 0, (penalty,), EndReason.TERMINATED, False),
            ]
            return Collection(tuple(Group(g.index, (*first, *g.trajectories[1:])) for g in groups), ())

        monkeypatch.setattr(module, "collect", with_penalties)
        assert len(gather(s, Carried()).candidates) == live


def test_instances_come_back_with_other_chances(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(monkeypatch, lambda group: "live", **{"rollout.instances": 8})
    steps(s, 4)
    seeds = [spec.instance_seed for call in s.played.calls for spec in call[::2]]
    assert len(set(seeds)) == 8
    assert sorted(seeds[:8]) == sorted(seeds[8:])
    assert len({spec.sampling_seed for call in s.played.calls for spec in call}) == 32
    assert s.played.numbers[3] == [12, 13, 14, 15]


def test_an_instance_with_a_flat_history_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    dull = derive(0, "train", "instance", 3, 0)
    s = session(
        monkeypatch, lambda group: "live", **{"rollout.instances": 8, "rollout.explore": 0.1, "rollout.explore_min": 0.001}
    )
    s.played.fate = lambda group: (
        "flat" if s.played.calls[-1][2 * s.played.numbers[-1].index(group)].instance_seed == dull else "live"
    )
    found = steps(s, 24)
    times = [sum(spec.instance_seed == dull for spec in call) // 2 for call in s.played.calls]
    others = [sum(spec.instance_seed != dull for spec in call) // 2 for call in s.played.calls]
    assert sum(times) <= 4 < 12 == round(sum(others) / 8)  # 12 rounds of the pool
    last = found[-1].carried
    assert last.streaks == tuple(sum(times) if i == 3 else 0 for i in range(8))
    assert sum(each.skipped for each in found) > 0
    assert gather_metrics(found[-1], s.config)["collect/skipped_instances"] == found[-1].skipped


def test_an_instance_is_not_played_twice_in_a_step_and_lost_groups_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    s = session(
        monkeypatch, lambda group: "lost" if group == 0 else "flat", **{"rollout.instances": 12, "rollout.resample": 2}
    )
    found = gather(s, Carried(cursor=7))  # the walk goes on into the next round of the pool
    seeds = [spec.instance_seed for call in s.played.calls for spec in call[::2]]
    assert len(seeds) == len(set(seeds)) == 12
    assert sorted(found.carried.streaks) == [0] + [1] * 11


def test_a_stage_plays_its_own_world_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [{"env": {"max_turns": 1}, "until": 1}, {"env": {"max_turns": 2}, "until": 2}]
    s = session(monkeypatch, lambda group: "live", **{"curriculum.stages": stages})
    for advanced, turns in (((), 1), ((4,), 2), ((4, 8), 5)):
        found = gather(s, Carried(drawn=8, advanced=advanced))
        assert s.played.worlds[-1]().settings.max_turns == turns
        assert gather_metrics(found, s.config)["collect/stage"] == len(advanced) + 1


@pytest.mark.parametrize("more", [{}, {"rollout.instances": 20, "rollout.explore": 0.5}], ids=["new", "pool"])
def test_c14_no_option_lets_an_evaluation_instance_into_training(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    settings = {"env.name": "frozen_lake", "env.size": 2, "env.frozen": 0.5, "rollout.resample": 3}
    stages = [{"env": {"max_turns": 1}, "until": 2}]
    plain = {**settings, **more, "curriculum.stages": stages}

    def fate(group: int) -> str:
        return "flat" if group % 3 else "live"

    probe = session(monkeypatch, fate, **plain)
    held_out = contents(probe.world.make, evaluation_specs("", episodes=6, samples=1, seed=1000))
    for forbidden, met in ((held_out, False), (frozenset(), True)):
        s = session(monkeypatch, fate, forbidden, **plain)
        carried = Carried()
        for step in range(6):
            carried = gather(s, carried).carried
            carried = Carried(
                drawn=carried.drawn, cursor=carried.cursor, streaks=carried.streaks, advanced=(0,) * (step > 1)
            )
        assert bool(contents(s.world.make, [spec for call in s.played.calls for spec in call]) & held_out) == met


def test_members_by_hand() -> None:
    def turn(entropies: tuple[float, ...], penalty: float = 0.0) -> Turn:
        reply = Completion((1,) * len(entropies), (-1.0,) * len(entropies), entropies, "", StopReason.END)
        return Turn((2,), True, reply, "", (), True, 1.0, penalty)

    first = Trajectory("e", 0, 0, (turn((1.0, 2.0)), turn((6.0,), -0.5)), EndReason.TERMINATED, True)
    second = Trajectory("e", 0, 1, (turn(()),), EndReason.TERMINATED, True)
    members = members_of(Group(0, (first, second)), task=False)
    assert members.returns.tolist() == [1.5, 1.0]
    assert members.entropies.tolist() == [3.0, 0.0]
    assert members.lengths.tolist() == [3.0, 0.0]
    assert members_of(Group(0, (first, second)), task=True).returns.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rollout.instances": 20, "rollout.resample": 2}, r"may play 24 different ones .* set rollout.instances to 24"),
        ({"rollout.explore": 0.5}, "rollout.instances is 0"),
        ({"rollout.resample": 1, "rollout.members": 1, "advantage.name": "gae"}, "every group is flat"),
    ],
)
def test_options_that_cannot_work_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config({"preset": "bandit-starpo-grpo", "rollout.groups": 8} | given)


def test_b32_groups_are_ranked_by_the_total_or_by_the_task_return() -> None:
    def member(number: int, reward: float, penalty: float) -> Trajectory:
        completion = Completion((1,), (0.0,), (0.0,), "", StopReason.END)
        turn = Turn((1,), False, completion, "", (), penalty == 0, reward, penalty)
        return Trajectory("e", 0, number, (turn,), EndReason.TERMINATED, success=False)

    # standard deviations of the total returns: 0.1/√2, 0.2/√2, 0; of the task returns: 0, 0.2/√2, 0.1/√2
    format_alone = Group(0, (member(0, 0.0, 0.0), member(1, 0.0, -0.1)))
    both = Group(1, (member(0, 0.2, 0.0), member(1, 0.0, 0.0)))
    hidden = Group(2, (member(0, 0.1, -0.1), member(1, 0.0, 0.0)))
    groups = (format_alone, both, hidden)
    for returns, wanted in (("total", [0, 1]), ("task", [1, 2])):
        config = load_config({}, {"filter.strategy": "top_k", "filter.value": 2, "filter.returns": returns})
        assert filter_groups(groups, config).kept.tolist() == wanted
