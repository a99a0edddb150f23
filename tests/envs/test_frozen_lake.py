"""FrozenLake: rules against gymnasium, maps by seed, symbols, hints, and what an action word does."""

import random
from collections import Counter

import gymnasium
import numpy as np
import pytest

from ragen.envs import Environment, environment_factory
from ragen.envs.frozen_lake import FrozenLake, FrozenLakeSettings
from ragen.envs.frozen_lake.maps import has_straight_path, is_connected, make_lake
from ragen.envs.frozen_lake.rules import DOWN, LEFT, RIGHT, UP, Lake, actual_direction, neighbours, slips
from ragen.errors import ConfigError, EnvironmentFault
from ragen.seeding import derive

DELTAS = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}


def lake_of(seed: int, **changes: object) -> Lake:
    values = {"size": 4, "frozen": 0.8, "corners": False, "blind_failure": False, "tries": 2000, **changes}
    return make_lake(seed, **values)  # type: ignore[arg-type]


def made(name: str = "frozen_lake", **overrides: object) -> Environment:
    return environment_factory({"name": name, **overrides})()


def player_at(text: str, size: int, symbols: str = "PX√") -> tuple[int, int]:
    grid = "".join(text.split("\n")[:size])
    return divmod(next(i for i, letter in enumerate(grid) if letter in symbols), size)


@pytest.mark.parametrize("success_rate", [1.0, 0.8, 2 / 3, 1 / 3, 0.0])
@pytest.mark.parametrize("size", [4, 8])
def test_transitions_equal_gymnasiums_table(success_rate: float, size: int) -> None:
    for seed in range(5):
        lake = lake_of(seed, size=size)
        theirs = gymnasium.make("FrozenLake-v1", desc=list(lake.rows()), success_rate=success_rate).unwrapped.P
        for cell in set(range(size**2)) - lake.holes - {lake.goal}:
            for action in range(4):
                expected: Counter[tuple[int, float, bool]] = Counter()
                for probability, target, reward, over in theirs[cell][action]:
                    expected[int(target), float(reward), bool(over)] += probability
                ours: Counter[tuple[int, float, bool]] = Counter()
                for probability, direction in slips(action, success_rate):
                    target = neighbours(size)[cell][direction]
                    ours[target, float(target == lake.goal), target == lake.goal or target in lake.holes] += probability
                assert ours == pytest.approx(expected)


def test_played_slips_have_the_tables_frequencies() -> None:
    """A chi-square test of 30,000 played moves against gymnasium's probabilities of the start cell, s = 2/3."""
    env = made("frozen_lake-slip23")
    seed = next(s for s in range(100) if len(set(neighbours(4)[lake_of(s).start])) == 4)  # no wall: 3 distinct outcomes
    lake = lake_of(seed)
    for action, word in enumerate(env.actions()):
        table = gymnasium.make("FrozenLake-v1", desc=list(lake.rows()), success_rate=2 / 3).unwrapped.P[lake.start][action]
        n, counts = 7500, Counter()
        for dynamics in range(n):
            env.reset(instance_seed=seed, dynamics_seed=dynamics)
            row, column = player_at(env.step(word).observation, 4)
            counts[row * 4 + column] += 1
        assert set(counts) == {target for _, target, _, _ in table}
        chi = sum((counts[target] - n * p) ** 2 / (n * p) for p, target, _, _ in table)
        assert chi < 13.8  # 2 degrees of freedom, p = 0.001


def test_the_direction_really_taken_inverts_the_distribution() -> None:
    assert [actual_direction(DOWN, 0.5, u) for u in (0.0, 0.499, 0.5, 0.749, 0.75, 0.999)] == [
        DOWN, DOWN, LEFT, LEFT, RIGHT, RIGHT,
    ]  # fmt: skip
    assert [actual_direction(LEFT, 0.0, u) for u in (0.0, 0.49, 0.5)] == [UP, UP, DOWN]
    assert actual_direction(UP, 1.0, 0.9999) == UP


@pytest.mark.parametrize("name", ["frozen_lake-det", "frozen_lake-symbols", "frozen_lake-8"])
def test_legend_each_action_word_does_what_it_says_on_a_known_state(name: str) -> None:
    """The legend test: word → effect, also with gymnasium's ids shuffled into other words."""
    env = made(name, success_rate=1.0)
    size, symbols = (8, "PX√") if name == "frozen_lake-8" else (4, "A@!"[:1] + "x!" if "symbols" in name else "PX√")
    for seed in range(30):
        for word, (down, right) in DELTAS.items():
            row, column = player_at(env.reset(instance_seed=seed, dynamics_seed=0).text, size, symbols)
            step = env.step(word)
            wanted = (min(max(row + down, 0), size - 1), min(max(column + right, 0), size - 1))
            assert player_at(step.observation, size, symbols) == wanted
            assert step.info["action_is_effective"] == (wanted != (row, column))


def test_action_words_are_data_in_gymnasiums_order() -> None:
    env = made("frozen_lake-det", action_words=["west", "south", "east", "north"])
    for seed in range(10):
        row, column = player_at(env.reset(instance_seed=seed, dynamics_seed=0).text, 4)
        assert player_at(env.step("south").observation, 4) == (min(row + 1, 3), column)
    assert "south" in made("frozen_lake", wording="verbose", action_words=["west", "south", "east", "north"]).instructions()
    assert env.match("Left") is None


def follow(env: Environment, seed: int, words: tuple[str, ...]) -> list[object]:
    env.reset(instance_seed=seed, dynamics_seed=0)
    return [env.step(word) for word in words]


def test_goal_and_hole_end_the_episode_with_their_symbols_and_rewards() -> None:
    env = made("frozen_lake-det", frozen=0.5, size=5)
    ends = Counter()
    for seed in range(60):
        env.reset(instance_seed=seed, dynamics_seed=0)
        rng = np.random.default_rng(seed)
        for _ in range(60):
            step = env.step(env.actions()[int(rng.integers(4))])
            grid = step.observation
            assert step.truncated is False
            assert step.terminated == ("√" in grid or "X" in grid)
            assert step.reward == float("√" in grid)
            assert step.info["success"] is env.success is ("√" in grid)
            assert ("G" in grid) == ("√" not in grid)
            if step.terminated:
                ends[step.reward] += 1
                with pytest.raises(EnvironmentFault, match="call reset"):
                    env.step("Up")
                break
    assert min(ends[0.0], ends[1.0]) > 5


def test_a_step_before_reset_or_of_an_unknown_word() -> None:
    env = made()
    with pytest.raises(EnvironmentFault, match="call reset"):
        env.step("Up")
    first = env.reset(instance_seed=0, dynamics_seed=0)
    step = env.step("jump")
    assert (step.observation, step.reward, step.terminated) == (first.text, 0.0, False)
    assert step.info == {"success": False, "action_is_valid": False, "action_is_effective": False}


def test_c6_the_same_seed_gives_the_same_map_whatever_the_global_generators_do() -> None:
    env = made()
    texts = []
    for perturbation in (1, 2):
        random.seed(perturbation)
        np.random.seed(perturbation)
        make_lake.cache_clear()
        texts.append([env.reset(instance_seed=seed, dynamics_seed=perturbation).text for seed in range(50)])
    assert texts[0] == texts[1]


def flooded(lake: Lake) -> bool:
    """An independent connectivity check: repeated dilation of the start over the open cells."""
    letters = np.array([list(row) for row in lake.rows()])
    reached = letters == "S"
    for _ in range(lake.size**2):
        grown = np.pad(reached, 1)
        grown = grown[1:-1, 1:-1] | grown[:-2, 1:-1] | grown[2:, 1:-1] | grown[1:-1, :-2] | grown[1:-1, 2:]
        reached = grown & (letters != "H")
    return bool(reached[letters == "G"].all())


@pytest.mark.parametrize("frozen", [0.5, 0.8])
@pytest.mark.parametrize("corners", [False, True])
def test_c6_every_map_can_be_solved_and_corners_lie_in_the_corners(frozen: float, corners: bool) -> None:
    for seed in range(150):
        lake = lake_of(seed, frozen=frozen, corners=corners)
        assert flooded(lake)
        assert lake.start != lake.goal
        assert Lake.from_rows(lake.rows()) == lake
        if corners:
            assert (lake.rows()[0][0], lake.rows()[-1][-1]) == ("S", "G")


def test_connectivity_agrees_with_the_flood_on_maps_of_both_kinds() -> None:
    rng = np.random.default_rng(0)
    verdicts = Counter()
    for _ in range(400):
        letters = np.where(rng.random(25) < 0.55, "F", "H")
        start, goal = rng.choice(25, 2, replace=False)
        letters[start], letters[goal] = "S", "G"
        lake = Lake.from_rows(["".join(row) for row in letters.reshape(5, 5)])
        verdicts[is_connected(lake)] += 1
        assert is_connected(lake) == flooded(lake)
    assert min(verdicts.values()) > 50


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"frozen": 0}, r"env\.frozen' is 0"),
        ({"size": 1}, r"env\.size' is 1"),
        ({"success_rate": 1.2}, r"env\.success_rate' is 1\.2"),
        ({"symbols": "P_OGX"}, "6 different printable characters"),
        ({"symbols": "P_OGXX"}, "6 different printable characters"),
        ({"action_words": ["Left", "left.", "Right", "Up"]}, "4 words that differ"),
        ({"action_words": ["Left", "Down", "Right"]}, r"env\.action_words"),
        ({"require_blind_failure": True}, r"env\.success_rate to 1"),
        ({"require_blind_failure": True, "success_rate": 1, "frozen": 1}, r"env\.frozen below 1"),
        ({"require_blind_failure": True, "success_rate": 1, "size": 2}, r"env\.size of 3 or more"),
    ],
)
def test_c6_impossible_settings_are_refused_at_construction(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment_factory({"name": "frozen_lake", **overrides})


def test_c6_maps_that_never_fit_end_in_an_error_after_bounded_tries() -> None:
    env = made(frozen=0.01, size=8, corners=True, tries=20)
    with pytest.raises(ConfigError, match=r"no connected map in 20 tries .* env\.frozen 0\.01"):
        env.reset(instance_seed=0, dynamics_seed=0)


def test_c7_fifty_seeds_give_almost_as_many_boards() -> None:
    env = made()
    assert len({env.reset(instance_seed=seed, dynamics_seed=0).text for seed in range(50)}) >= 45


def test_c14_train_and_evaluation_seeds_are_disjoint_and_content_tells_equal_maps() -> None:
    train = {derive(0, "train", "instance", i) for i in range(10_000)}
    assert not train & {derive(0, "eval", "instance", i) for i in range(10_000)}
    env, symbols, small = made(), made("frozen_lake-symbols"), made(size=2)
    for seed in range(50):
        env.reset(instance_seed=seed, dynamics_seed=0)
        symbols.reset(instance_seed=seed, dynamics_seed=1)
        assert env.content() == symbols.content()
    texts: dict[str, str] = {}
    for seed in range(300):  # a 2 × 2 lake has few maps, so seeds repeat maps: the content must say so
        text = small.reset(instance_seed=seed, dynamics_seed=0).text
        content = small.content()
        assert content is not None
        assert texts.setdefault(content, text) == text
    assert len(texts) == len(set(texts.values())) < 100


def test_variants_show_the_same_instances() -> None:
    names = ("frozen_lake", "frozen_lake-slip08", "frozen_lake-slip23", "frozen_lake-det", "frozen_lake-coords",
             "frozen_lake-offset", "frozen_lake-symbols")  # fmt: skip
    envs = [made(name) for name in names]
    for seed in range(30):
        texts = [env.reset(instance_seed=seed, dynamics_seed=7).text for env in envs]
        assert len({env.content() for env in envs}) == 1
        assert len({"\n".join(text.split("\n")[:4]) for text in texts[:-1]}) == 1
        assert texts[-1].translate(str.maketrans("A.#@x!", "P_OGX√")) == texts[0]


@pytest.mark.parametrize(
    ("rows", "offset", "places"),
    [
        (("FSFF", "FFFF", "GHFF", "FFFH"), "Goal is 2 down, 1 left.", "You: (0, 1). Goal: (2, 0). Holes: (2, 1) (3, 3)."),
        (("FFGF", "FFFF", "FFFF", "FFSF"), "Goal is 3 up.", "You: (3, 2). Goal: (0, 2). No holes."),
        (("FFFF", "SFFG", "FFFF", "FFFF"), "Goal is 3 right.", "You: (1, 0). Goal: (1, 3). No holes."),
    ],
)
def test_hints_say_where_the_goal_is(
    rows: tuple[str, ...], offset: str, places: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragen.envs.frozen_lake.env.make_lake", lambda seed, **settings: Lake.from_rows(rows))
    texts = [
        FrozenLake(FrozenLakeSettings(hint=hint)).reset(instance_seed=0, dynamics_seed=0).text  # type: ignore[arg-type]
        for hint in ("none", "offset", "coords")
    ]
    assert texts == [texts[0], f"{texts[0]}\n{offset}", f"{texts[0]}\n{places}"]
    assert len(texts[0].split("\n")) == 4
    assert texts[0].replace("P", "S").replace("_", "F").replace("O", "H") == "\n".join(rows)


def test_hints_are_off_in_the_papers_presets() -> None:
    for name in ("frozen_lake", "frozen_lake-det", "frozen_lake-corners", "frozen_lake-blindfail"):
        assert "oal is" not in made(name).reset(instance_seed=0, dynamics_seed=0).text


def test_thoughts_restate_the_offset_or_name_the_moves_and_stay_short() -> None:
    env = made("frozen_lake-offset")
    hint = env.reset(instance_seed=4, dynamics_seed=0).text.split("\n")[-1]
    thoughts = {env.thought(np.random.default_rng(seed), ["Down", "Left"]) for seed in range(200)}
    assert len(thoughts) >= 6
    assert all(thought.startswith(hint) and "Down" not in thought.removeprefix(hint) for thought in thoughts)
    assert max(len(thought.split()) for thought in thoughts) <= 15
    plain = made()
    plain.reset(instance_seed=4, dynamics_seed=0)
    said = plain.thought(np.random.default_rng(0), ["Down", "Left"])
    assert "oal is" not in said
    assert "Down, Left" in said
    assert len(plain.thought(np.random.default_rng(0), ["Up"] * 5).split()) <= 20


def straight_paths(lake: Lake) -> list[bool]:
    """For every order of moves that only come closer: whether it meets no hole (brute force)."""
    row, column = divmod(lake.start, lake.size)
    goal = divmod(lake.goal, lake.size)

    def walk(r: int, c: int) -> list[bool]:
        if r * lake.size + c in lake.holes:
            return [False]
        if (r, c) == goal:
            return [True]
        found = walk(r + (1 if goal[0] > r else -1), c) if r != goal[0] else []
        return found + (walk(r, c + (1 if goal[1] > c else -1)) if c != goal[1] else [])

    return walk(row, column)


def test_straight_paths_agree_with_brute_force() -> None:
    verdicts = Counter()
    for seed in range(400):
        lake = lake_of(seed, size=5, frozen=0.6)
        verdicts[has_straight_path(lake)] += 1
        assert has_straight_path(lake) == any(straight_paths(lake))
    assert min(verdicts.values()) > 40


def play(env: Environment, name: str, seed: int, rng: np.random.Generator) -> bool:
    """One episode of a reference player, within the turn and action budgets."""
    env.reset(instance_seed=seed, dynamics_seed=seed + 10**6)
    left = env.settings.max_actions
    for _ in range(env.settings.max_turns):
        for action in list(env.players()[name](env, rng))[:left]:
            left -= 1
            if env.step(action).terminated:
                return env.success
    return False


@pytest.mark.parametrize("name", ["frozen_lake-blindfail", "frozen_lake-offset-blindfail"])
def test_on_the_held_out_maps_heading_straight_always_fails_and_the_best_play_always_wins(name: str) -> None:
    env, rng = made(name), np.random.default_rng(0)
    best = []
    for seed in range(256):
        assert not play(env, "blind", seed, rng)
        assert not play(env, "blind", seed, rng)
        best.append(env.best_success())
    assert set(best) <= {0.0, 1.0}
    assert np.mean(best) > 0.98


def test_the_blind_walker_wins_most_maps_without_slips_and_every_map_without_holes() -> None:
    rng = np.random.default_rng(0)
    env = made("frozen_lake-det")
    wins = np.mean([play(env, "blind", seed, rng) for seed in range(400)])
    assert 0.65 < wins < 0.85  # 0.74 measured on 1,000 maps
    assert all(play(made("frozen_lake-det", frozen=1.0), "blind", seed, rng) for seed in range(50))


def random_success(name: str, **overrides: object) -> float:
    """Two turns of one to five random actions (the first trial's random player)."""
    env, rng, wins = made(name, **overrides), np.random.default_rng(1), 0
    for seed in range(2000):
        env.reset(instance_seed=seed, dynamics_seed=seed)
        for _ in range(2):
            for action in rng.integers(4, size=int(rng.integers(1, 6))):
                if env.step(env.actions()[action]).terminated:
                    break
            else:
                continue
            break
        wins += env.success
    return wins / 2000


def test_random_play_in_two_turns_succeeds_on_14_to_19_percent_of_random_maps() -> None:
    assert 0.14 <= random_success("frozen_lake-det") <= 0.19
    assert random_success("frozen_lake-det", corners=True) < 0.02


def test_facts_are_the_goal_seen_from_where_the_player_is_now() -> None:
    env = made("frozen_lake-offset")
    for seed in range(20):
        hint = env.reset(instance_seed=seed, dynamics_seed=0).text.split("\n")[-1]
        for action in ("Down", "Left", "Up", "Right"):
            facts = env.facts()
            said = [fact.verdict(f"So the {hint}") for fact in facts]
            assert said == [True if fact.truths else None for fact in facts]
            assert True in said
            assert [fact.verdict("goal is 9 down, 9 right") for fact in facts] == [False, False]
            step = env.step(action)
            if step.terminated:
                break
            hint = step.observation.split("\n")[-1]


def test_facts_tell_coordinates_where_the_observation_does() -> None:
    env = made("frozen_lake-coords")
    hint = env.reset(instance_seed=3, dynamics_seed=0).text.split("\n")[-1]
    assert [fact.verdict(hint) for fact in env.facts()] == [True, True]
    assert [fact.verdict("You: (7, 7). Goal: (8, 8).") for fact in env.facts()] == [False, False]
