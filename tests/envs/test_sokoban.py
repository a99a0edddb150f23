"""The Sokoban environment: presets, paired symbols, legend, hints, oracle, content and bad input."""

import random
import re

import numpy as np
import pytest

from ragen.config.settings import validated
from ragen.envs.registry import environment_factory, environments
from ragen.envs.sokoban import SokobanEnv, SokobanSettings
from ragen.envs.sokoban.levels import level_rows
from ragen.errors import ConfigError, EnvironmentFault

PRESETS = ("sokoban", "sokoban-large", "sokoban-symbols", "sokoban-coords", "sokoban-offset")
DEFAULT, OTHER = "#_O√XPS", "W.GCBA@"


def env_of(name="sokoban", **overrides):
    return environment_factory({"name": name, **overrides})()


def play(env, seed, words):
    """(texts, rewards, infos) of an episode that takes these words until it ends."""
    texts, rewards, infos = [env.reset(instance_seed=seed, dynamics_seed=0).text], [], []
    for word in words:
        step = env.step(word)
        texts.append(step.observation)
        rewards.append(step.reward)
        infos.append(dict(step.info))
        assert step.truncated is False
        assert step.terminated == step.info["success"] == env.success
        if step.terminated:
            break
    return texts, rewards, infos


def words_of(seed, count=30):
    return random.Random(seed).choices(("Up", "Down", "Left", "Right"), k=count)


def level_file(tmp_path, *rows):
    path = tmp_path / "level.txt"
    path.write_text("\n".join(rows))
    return str(path)


def test_the_presets_are_registered_with_their_sizes_and_symbols():
    assert set(PRESETS) <= set(environments.names())
    shapes = {}
    for name in PRESETS:
        env = env_of(name)
        lines = env.reset(instance_seed=1, dynamics_seed=0).text.split("\n")
        shapes[name] = (len(lines[0]), sum(line.count(s) for line in lines[: len(lines[0])] for s in ("X", "√", "B", "C")))
        assert env.actions() == ("Up", "Down", "Left", "Right")
    assert shapes == {name: (8, 2) if name == "sokoban-large" else (6, 1) for name in PRESETS}


def test_variants_show_the_same_levels_so_that_a_comparison_is_paired():
    table = str.maketrans(DEFAULT, OTHER)
    plain, symbols = env_of(), env_of("sokoban-symbols")
    hinted = [env_of("sokoban-coords"), env_of("sokoban-offset")]
    for seed in range(40):
        texts, rewards, infos = play(plain, seed, words_of(seed))
        start = plain.content()
        others = play(symbols, seed, words_of(seed))
        assert others == ([text.translate(table) for text in texts], rewards, infos)
        assert symbols.content() == start
        for env in hinted:
            with_hint = play(env, seed, words_of(seed))
            assert [text.rsplit("\n", 1)[0] for text in with_hint[0]] == texts
            assert with_hint[1:] == (rewards, infos)
            assert env.content() == start


def test_content_tells_levels_apart_and_stays_the_same_during_an_episode():
    env = env_of()
    contents = {}
    for seed in range(100):
        env.reset(instance_seed=seed, dynamics_seed=seed)
        key, before = "\n".join(level_rows(env._level)), env.content()
        env.step("Up")
        assert env.content() == before
        assert contents.setdefault(before, key) == key
    assert len(contents) == len(set(contents.values())) >= 90


def test_an_episode_by_hand(tmp_path):
    env = env_of(level_file=level_file(tmp_path, "######", "#@$. #", "#  $.#", "######"))
    assert env.reset(instance_seed=0, dynamics_seed=0).text == "######\n#PXO_#\n#__XO#\n######"
    texts, rewards, infos = play(env, 0, ["Up", "Right", "Left", "jump", "Down", "Right", "Right"])
    assert texts[1:] == [
        "######\n#PXO_#\n#__XO#\n######",
        "######\n#_P√_#\n#__XO#\n######",
        "######\n#P_√_#\n#__XO#\n######",
        "######\n#P_√_#\n#__XO#\n######",
        "######\n#__√_#\n#P_XO#\n######",
        "######\n#__√_#\n#_PXO#\n######",
        "######\n#__√_#\n#__P√#\n######",
    ]
    assert rewards == pytest.approx([-0.1, 0.9, -0.1, 0.0, -0.1, -0.1, 10.9])
    assert [info["action_is_effective"] for info in infos] == [False, True, True, False, True, True, True]
    assert [info["action_is_valid"] for info in infos] == [True, True, True, False, True, True, True]
    assert [info["success"] for info in infos] == [False] * 6 + [True]
    with pytest.raises(EnvironmentFault, match="after the end"):
        env.step("Up")


def test_player_and_box_on_target_have_their_own_symbols(tmp_path):
    env = env_of("sokoban-symbols", level_file=level_file(tmp_path, "#######", "#+$ *.#", "# $   #", "#######"))
    assert env.reset(instance_seed=0, dynamics_seed=0).text == "WWWWWWW\nW@B.CGW\nW.B...W\nWWWWWWW"


@pytest.mark.parametrize("wording", ["short", "verbose"])
@pytest.mark.parametrize("name", PRESETS)
def test_the_legend_names_every_symbol_once_and_truly(name, wording):
    env = env_of(name, wording=wording)
    legend = dict(
        re.findall(
            r"(\S):? (wall|(?:empty )?floor|target|box on target|box|player on target|player|you on target|you)\b",
            next(line for line in env.instructions().split("\n") if "floor" in line),
        )
    )
    kinds = {meaning.replace("empty ", "").replace("you", "player"): symbol for symbol, meaning in legend.items()}
    assert len(kinds) == 7
    for seed in range(20):
        text = env.reset(instance_seed=seed, dynamics_seed=0).text
        rows = level_rows(env._level)
        shown = {
            " ": "floor",
            "#": "wall",
            ".": "target",
            "$": "box",
            "*": "box on target",
            "@": "player",
            "+": "player on target",
        }
        assert text.split("\n")[: len(rows)] == ["".join(kinds[shown[cell]] for cell in row) for row in rows]


@pytest.mark.parametrize("words", [("Up", "Down", "Left", "Right"), ("north", "south", "west", "east")])
def test_each_action_word_moves_the_player_as_the_legend_says(tmp_path, words):
    env = env_of(
        wording="verbose",
        action_words=words,
        level_file=level_file(tmp_path, "#######", "#$   .#", "#  @  #", "#     #", "#######"),
    )
    says = env.instructions()
    assert (
        f"{words[0]} moves you one row up, {words[1]} one row down, {words[2]} one column left, {words[3]} one column right."
        in says
    )
    assert env.actions() == words
    for word, (row, column) in zip(words, [(1, 3), (3, 3), (2, 2), (2, 4)], strict=True):
        env.reset(instance_seed=0, dynamics_seed=0)
        assert env.step(word).observation.split("\n")[row][column] == "P"


def test_coordinates_are_row_and_column_from_the_top_left(tmp_path):
    env = env_of("sokoban-coords", level_file=level_file(tmp_path, "#######", "#@ $ .#", "# $  .#", "#######"))
    assert "(row, column)" in env.instructions()
    text = env.reset(instance_seed=0, dynamics_seed=0).text
    assert text.split("\n")[-1] == "You: (1, 1). Boxes: (1, 3) (2, 2). Targets: (1, 5) (2, 5)."
    assert env.step("Down").observation.split("\n")[-1].startswith("You: (2, 1). Boxes: (1, 3) (2, 2).")


@pytest.mark.parametrize("name", PRESETS)
def test_the_oracle_solves_every_level_within_the_default_budgets(name):
    env = env_of(name)
    for seed in range(60):
        env.reset(instance_seed=seed, dynamics_seed=0)
        assert env.best_success() == 1.0
        moves = turns = 0
        while not env.success:
            plan = env.plan()
            assert 1 <= len(plan) <= 5
            for word in plan:
                env.step(word)
            moves, turns = moves + len(plan), turns + 1
        assert 2 <= moves <= 10
        assert turns <= 5


def test_best_success_counts_both_budgets(tmp_path):
    path = level_file(tmp_path, "#########", "#@$    .#", "#########")  # 5 pushes
    for budgets, best in [
        ({"max_actions": 5, "max_turns": 1, "max_actions_per_turn": 5}, 1.0),
        ({"max_actions": 4, "max_turns": 5, "max_actions_per_turn": 5}, 0.0),
        ({"max_actions": 10, "max_turns": 2, "max_actions_per_turn": 2}, 0.0),
        ({"max_actions": 10, "max_turns": 3, "max_actions_per_turn": 2}, 1.0),
    ]:
        env = env_of(level_file=path, **budgets)
        env.reset(instance_seed=0, dynamics_seed=0)
        assert env.best_success() == best
        assert env.plan() == ("Right",) * budgets["max_actions_per_turn"]


def test_best_success_is_of_the_start_and_a_dead_end_has_no_plan(tmp_path):
    env = env_of(level_file=level_file(tmp_path, "######", "#    #", "# $@.#", "#    #", "######"))
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.plan() is not None
    env.step("Left")
    assert env.plan() is None
    assert env.best_success() == 1.0


def test_thoughts_are_short_varied_and_name_the_moves():
    env = env_of()
    env.reset(instance_seed=0, dynamics_seed=0)
    rng = np.random.default_rng(0)
    actions = ("Up", "Left", "Left", "Down", "Right")
    thoughts = {env.thought(rng, actions) for _ in range(100)}
    assert len(thoughts) >= 5
    assert all("Up, Left, Left, Down, Right" in thought for thought in thoughts)
    assert all(len(env.thought(rng, ("Up",) * count).split()) <= 20 for count in (1, 5, 10, 40))


@pytest.mark.parametrize("name", PRESETS)
def test_c8_same_seed_and_actions_give_the_same_transcript_and_leave_global_generators_alone(name):
    random.seed(1)
    np.random.seed(1)
    python, numpy_state = random.getstate(), np.random.get_state()[1].tolist()
    one, two = env_of(name), env_of(name)
    for seed in range(10):
        words = words_of(seed)
        assert play(one, seed, words) == play(two, seed, words)
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == numpy_state
    assert one.reset(instance_seed=3, dynamics_seed=0).text == two.reset(instance_seed=3, dynamics_seed=99).text


@pytest.mark.parametrize(
    "text", ["", "None", "x" * 10_000, "\0", "🚀", "\u202eUp", "1e999", "Up || Down", "<answer>Up</answer>"]
)
def test_a27_text_that_is_no_action_changes_nothing_and_never_raises(text):
    env = env_of()
    before = env.reset(instance_seed=0, dynamics_seed=0).text
    step = env.step(text)
    assert (step.observation, step.reward, step.terminated) == (before, 0.0, False)
    assert step.info == {"success": False, "action_is_valid": False, "action_is_effective": False}


def test_a_loosely_written_action_is_understood():
    env, other = env_of(), env_of()
    for seed in range(5):
        assert play(env, seed, [' "up". ', "LEFT"]) == play(other, seed, ["Up", "Left"])


def test_playing_before_reset_says_so():
    env = SokobanEnv()
    for act in (lambda: env.step("Up"), lambda: env.success, env.content, env.plan, env.best_success):
        with pytest.raises(EnvironmentFault, match="call reset"):
            act()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"widht": 7}, "unknown setting 'env.widht': did you mean 'width'"),
        ({"width": 2}, "'env.width' is 2: .*a whole number of at least 3"),
        ({"symbols": "#_O"}, "7 different printable characters"),
        ({"symbols": "#_OOXPS"}, "7 different printable characters"),
        ({"action_words": ["Up", "up.", "Left", "Right"]}, "4 words that differ"),
        ({"action_words": ["Up||", "Down", "Left", "Right"]}, r"without '\|\|'"),
        ({"min_moves": 11}, "env.min_moves is 11, more than env.max_moves 10"),
        ({"width": 3, "height": 3, "boxes": 2}, "env.boxes is 2, but a room"),
        ({"hint": "map"}, "'env.hint' is 'map'"),
    ],
)
def test_a_wrong_setting_is_named(values, message):
    with pytest.raises(ConfigError, match=message):
        validated(SokobanSettings, values, "env.")


def test_symbols_may_be_written_with_blanks():
    assert SokobanSettings(symbols="W . G C B A @").symbols == OTHER


def test_facts_are_box_and_target_seen_from_the_player(tmp_path):
    path = tmp_path / "levels.txt"
    path.write_text("#######\n#@    #\n# $   #\n#    .#\n#######\n")
    env = SokobanEnv(SokobanSettings(level_file=str(path)))
    env.reset(instance_seed=0, dynamics_seed=0)
    said = "The box is 1 down, 1 right and the target is 4 right, 2 down."
    assert [fact.verdict(said) for fact in env.facts()] == [True] * 4
    env.step("Right")
    assert [fact.verdict(said) for fact in env.facts()] == [True, False, True, False]
    assert [fact.verdict("box is 1 down, target is 2 down, 3 right") for fact in env.facts()] == [True, None, True, True]
    coords = SokobanEnv(SokobanSettings(level_file=str(path), hint="coords"))
    shown = coords.reset(instance_seed=0, dynamics_seed=0).text.split("\n")[-1]
    assert shown == "You: (1, 1). Boxes: (2, 2). Targets: (3, 5)."
    assert [fact.verdict(shown) for fact in coords.facts()] == [True, True, True]
    assert [fact.verdict("You: (1, 2). Boxes: (2, 3). Targets: (5, 3).") for fact in coords.facts()] == [False] * 3


def test_the_offset_hint_follows_the_player_and_is_what_a_demonstration_says(tmp_path):
    level = level_file(tmp_path, "#######", "#@    #", "# $   #", "#   $.#", "#  .  #", "#######")
    env = env_of("sokoban-offset", level_file=level)
    shown = env.reset(instance_seed=0, dynamics_seed=0).text.split("\n")[-1]
    assert shown == "Box is 1 down, 1 right. Box is 2 down, 3 right. Target is 2 down, 4 right. Target is 3 down, 2 right."
    assert [fact.verdict(shown) for fact in env.facts()] == [True] * 4
    assert env.thought(np.random.default_rng(0), ("Up",)).startswith(shown)
    shown = env.step("Right").observation.split("\n")[-1]
    assert shown == "Box is 1 down. Box is 2 down, 2 right. Target is 2 down, 3 right. Target is 3 down, 1 right."
    for word in ("Right", "Down", "Down", "Down"):
        shown = env.step(word).observation.split("\n")[-1]
    assert shown == "Box is 2 up, 1 left. Box is 1 up, 1 right. Target is 1 up, 2 right. Target is here."


def test_the_straight_walker_goes_to_the_target_whatever_is_in_its_way(tmp_path):
    env = env_of("sokoban-offset", level_file=level_file(tmp_path, "######", "#@   #", "# $ .#", "######"))
    env.reset(instance_seed=0, dynamics_seed=0)
    walker = env.players()["straight"]
    turns = {tuple(walker(env, np.random.default_rng(seed))) for seed in range(20)}
    assert turns == {("Down", "Right", "Right", "Right"), ("Right", "Right", "Right", "Down")}
    for word in ("Right", "Right", "Right", "Down"):
        env.step(word)
    assert {walker(env, np.random.default_rng(seed)) for seed in range(40)} == {(word,) for word in env.actions()}
    assert env_of("sokoban", max_actions_per_turn=2).players().keys() == {"straight"}
    with pytest.raises(EnvironmentFault, match="plays sokoban"):
        walker(env_of("frozen_lake"), np.random.default_rng(0))


@pytest.mark.parametrize("name", ["~nosuch/levels.txt", "a\0b.txt", "missing.txt"])
def test_a_level_file_that_cannot_be_read_is_told(name):
    with pytest.raises(ConfigError, match=r"env\.level_file .* cannot be read"):
        env_of(level_file=name)
