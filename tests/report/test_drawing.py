"""How environments are drawn: grids and arms as they were seen, everything else as text; nothing a run names is executed."""

import json
from dataclasses import replace

import pytest

from ragen.envs import environment_factory, environments
from ragen.episode import Completion, EndReason, StopReason, Trajectory, Turn
from ragen.report.drawing import drawing_of, draws, grid_in, numbers_in
from ragen.rollout.demonstrations import demonstrate, demonstration_specs, optimal_player
from ragen.rollout.runner import Rules
from ragen.text.chat import ChatRenderer


def played(*turns):
    made = tuple(
        Turn(
            (1,),
            False,
            Completion((1,), (0.0,), (0.0,), "t", StopReason.END),
            seen,
            actions,
            True,
            reward,
            info={"next_observation": after},
        )
        for seen, actions, reward, after in turns
    )
    return Trajectory("e", 1, 0, made, EndReason.TERMINATED, False)


@pytest.mark.parametrize("name", ["frozen_lake", "frozen_lake-offset", "sokoban", "sokoban-symbols", "sokoban-coords"])
def test_the_grid_of_a_real_first_observation_is_found_in_its_prompt(name):
    env = environments.get(name).cls(environments.get(name).settings({}))
    shown = env.reset(instance_seed=3, dynamics_seed=4).text
    after = env.step(env.actions()[1]).observation
    prompt = f"{env.instructions()}\nReply: <think>why</think><answer>action</answer>\n{shown}"
    drawing = drawing_of({"name": name})
    first, second = drawing.frames(played((prompt, (env.actions()[1],), 0.0, after)))
    size = env.settings.size if name.startswith("frozen") else env.settings.height
    assert first == shown.split("\n")[:size]
    assert second == after.split("\n")[:size]
    assert drawing.kind == "grid"
    roles = [role for row in first for cell in row for role in drawing.facts["cells"][cell]]
    assert roles.count("player") == 1
    assert {"goal", "target"} & set(roles)


@pytest.mark.parametrize(("name", "size"), [("sudoku", 4), ("sudoku-9", 9), ("2048", 4)])
def test_the_numbers_of_a_real_first_observation_are_found_in_its_prompt(name, size):
    env = environments.get(name).cls(environments.get(name).settings({}))
    shown = env.reset(instance_seed=3, dynamics_seed=4).text
    prompt = f"{env.instructions()}\nReply: <think>why</think><answer>action</answer>\n{shown}"
    given = "1 2 3: that cell is given.\n" if size != 4 else ""
    drawing = drawing_of({"name": name})
    frames = drawing.frames(played((prompt, (env.actions()[0],), 0.0, f"{given}{shown}")))
    assert frames == [[row.split() for row in shown.split("\n")]] * 2
    assert len(frames[0]) == size
    assert drawing.kind == "numbers"
    assert drawing.facts == ({"shades": 32, "blank": "_"} if name == "2048" else {"box": round(size**0.5), "blank": "_"})


def test_numbers_are_found_only_where_there_are_enough_rows():
    assert numbers_in("1 2\n3 4\n\n5 6", 2, "_") == [["1", "2"], ["3", "4"]]
    assert numbers_in("1 2\nx 4", 2, "_") is None
    assert numbers_in("1 2\n3 4\n5 6", 2, "_") == [["3", "4"], ["5", "6"]]


def test_changed_symbols_are_drawn_by_what_they_mean():
    drawing = drawing_of({"name": "frozen_lake", "symbols": "abcdef"})
    assert drawing.facts["cells"]["c"] == ["hole"]
    assert drawing.facts["cells"]["e"] == ["hole", "player"]
    assert grid_in("x\nab\ncd\n\nhello", "abcd") == ["ab", "cd"]
    assert grid_in("ab\nabc\n", "abcd") is None  # rows of one length, and two of them


def test_arms_stand_in_the_prompts_order_with_the_pulls_so_far():
    drawing = drawing_of({"name": "bandit"})
    frames = drawing.frames(played(("Choose one: Phoenix, Dragon.\nDragon or Phoenix?", ("Dragon",), 1.0, "")))
    assert frames == [
        {"arms": ["Dragon", "Phoenix"], "pulls": []},
        {"arms": ["Dragon", "Phoenix"], "pulls": [["Dragon", 1.0]]},
    ]
    assert drawing.facts["arms"]["Phoenix"] == "always pays 0.15"
    assert drawing.facts["arms"]["Dragon"] == "pays 1 in 25% of pulls, else 0"
    assert drawing.frames(played(("Which?", (), 0.0, ""))) is None
    assert drawing.frames(played()) is None


@pytest.fixture
def shopped(chatml_tokenizer):
    """An episode of WebShop's oracle."""
    make = environment_factory({"name": "webshop"})
    (spec,) = demonstration_specs("webshop", seed=1, count=1)
    return demonstrate(spec, make, ChatRenderer(chatml_tokenizer), Rules(2000, 200_000), optimal_player)


def test_pages_of_the_shop_are_what_was_seen_and_clicked(shopped):
    frames = drawing_of({"name": "webshop"}).frames(shopped)
    assert json.loads(json.dumps(frames)) == frames
    assert len(frames) == len(shopped.turns) + 1
    first, results, item, *_, done = frames
    assert [frame["kind"] for frame in frames] == ["search", "results", *["item"] * (len(frames) - 3), "done"]
    assert shopped.turns[0].actions == (f"search[{first['query']}]",)
    assert len(results["results"]) == 10
    asin = results["next"]
    (entry,) = [each for each in results["results"] if each[0] == asin]
    assert entry[1:] == [item["title"], item["price"]]
    chosen = [value for _, values in frames[-2]["options"] for value, _, is_chosen in values if is_chosen]
    assert chosen == [value for _, value in done["chosen"]]
    assert frames[-2]["next"] == "Buy Now"
    assert done["score"]["reward"] == 1.0
    assert all(met for _, _, met in done["score"]["parts"])
    for frame, turn in zip(frames[1:], shopped.turns, strict=True):
        assert all(label in turn.info["next_observation"] for label in frame["labels"] if frame["kind"] != "done")


def test_pages_that_were_not_seen_are_not_drawn(shopped):
    drawing = drawing_of({"name": "webshop", "catalogue_seed": 7})
    assert drawing.frames(shopped) == [None] * (len(shopped.turns) + 1)
    last = replace(shopped.turns[-1], info={"next_observation": "something else"})
    changed = replace(shopped, turns=(*shopped.turns[:-1], last))
    frames = drawing_of({"name": "webshop"}).frames(changed)
    assert [frame is None for frame in frames] == [False] * len(shopped.turns) + [True]
    assert drawing_of({"name": "webshop", "products": "/nosuch/items.json"}).frames(shopped) is None


@pytest.mark.parametrize("spec", [{"name": "nosuch"}, {"name": "bandit", "nosuch": 3}, {}])
def test_what_is_not_known_here_is_text(spec):
    assert drawing_of(spec).kind == "text"
    assert drawing_of(spec).frames(played(("o", (), 0.0, ""))) is None


def test_an_environments_file_is_not_run(tmp_path):
    file = tmp_path / "env.py"
    file.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert drawing_of({"name": f"{file}:Env"}).kind == "text"
    assert not (tmp_path / "ran").exists()


def test_an_environment_of_ones_own_can_be_drawn(monkeypatch):
    from ragen.envs.base import EnvSettings
    from ragen.envs.registry import EnvPreset
    from ragen.report import drawing

    class Own(environments.get("bandit").cls):
        settings_class = EnvSettings

    monkeypatch.setattr(drawing, "_drawings", {})
    monkeypatch.setitem(environments._items, "own", EnvPreset(Own, ""))
    draws(Own)(lambda settings: drawing.Drawing("shelf", {"turns": settings.max_turns}))
    assert drawing_of({"name": "own"}).facts == {"turns": 5}
