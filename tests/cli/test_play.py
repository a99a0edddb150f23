"""A person plays what an agent plays: same prompts, rules and penalties."""

import io
import re

import pytest

from ragen.cli.main import main
from ragen.envs import environment_factory
from ragen.rollout.runner import make_task
from ragen.seeding import derive
from ragen.shop.play import Episodes
from ragen.text.prompts import first_message


def play(monkeypatch, capsys, typed, *words):
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    assert main(["play", *words]) == 0
    return capsys.readouterr().out


def test_the_prompt_is_exactly_what_an_agent_is_shown(monkeypatch, capsys):
    env = environment_factory({"name": "frozen_lake"})()
    seen = env.reset(instance_seed=derive(4, "play", "instance"), dynamics_seed=derive(4, "play", "dynamics"))
    text = play(monkeypatch, capsys, "", "frozen_lake", "--seed", "4")
    assert first_message(make_task(env, thinking=True), seen.text) in text
    assert "left." in text


def test_a_pull_of_the_safe_arm_pays_what_it_says(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "phoenix\n", "bandit")
    assert "did Phoenix: reward 0.15" in text
    assert "no success · end: terminated · total 0.15" in text


def test_settings_of_the_environment_apply(monkeypatch, capsys):
    assert "reward 0.5" in play(monkeypatch, capsys, "Phoenix\n", "bandit", "--env.low_reward", "0.5")


def test_several_actions_penalties_and_the_end_of_input(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "jump\n||\nUp || Up\n", "sokoban")
    words = "the actions are: Up, Down, Left, Right"
    assert f"did nothing: reward 0 and -0.1 for the format ('jump' is no action; {words})" in text
    assert f"did nothing: reward 0 and -0.1 for the format (no action was named; {words})" in text
    assert "did Up || Up: reward -0.2" in text
    assert "'jump'" in text
    assert text.rstrip().endswith("left after turn 3, total -0.4.")


def test_a_shop_is_played_with_bare_labels_and_words(monkeypatch, capsys):
    typed = "leggings\nnext >\nB0\nback to search\nclick[x]\nsearch: red shoes\nclick back to search\n"
    text = play(monkeypatch, capsys, typed, "webshop", "--env.observation", "compact")
    assert "or only what stands in its brackets" in text
    for told in ("did search[leggings]: reward 0", "did click[Next >]", "did nothing", "did click[Back to Search]"):
        assert told in text
    assert "did search[red shoes]" in text
    assert text.count("did click[Back to Search]") == 2


def test_a_label_that_is_not_on_the_page_is_answered_with_those_that_are(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "leggings\nclick[nowhere]\n", "webshop")
    shown = text.partition("Clickable: ")[2].partition("\n")[0]
    assert f"('click[nowhere]' is no action; here you click {shown})" in text


def test_a_shop_says_how_to_open_the_same_goal_in_a_browser(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "", "webshop-15", "--env.catalogue_size", "50")
    advised = re.search(r"ragen shop --env webshop-15 --instance (\d+) --env.catalogue_size 50;", text.splitlines()[0])
    assert advised is not None
    episodes = Episodes(environment_factory({"name": "webshop-15", "catalogue_size": 50}))
    goal = episodes.goal(int(advised[1])).goal
    assert goal.instruction in text
    assert episodes.goal(0).goal.instruction not in text
    assert "ragen shop" not in play(monkeypatch, capsys, "", "bandit")


def test_fewer_words_are_offered_where_there_are_more(monkeypatch, capsys):
    offer = "in fewer words: --env.observation compact"
    assert offer in play(monkeypatch, capsys, "", "webshop")
    assert offer not in play(monkeypatch, capsys, "", "webshop", "--env.observation", "compact")


def test_without_thinking_the_prompt_asks_for_none(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "Dragon\n", "bandit", "--no-thinking")
    assert "<think>" not in text
    assert "did Dragon" in text


@pytest.mark.parametrize("blank", ["\n", "   \n", "\t\n\n"])
def test_an_empty_line_costs_nothing(monkeypatch, capsys, blank):
    text = play(monkeypatch, capsys, f"{blank}Phoenix\n", "bandit")
    assert "did nothing" not in text
    assert "did Phoenix: reward 0.15" in text


def test_what_was_wrong_with_the_last_turn_is_told_though_no_prompt_follows(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "hm\n", "bandit")
    actions = text.partition("('hm' is no action; the actions are: ")[2].partition(")")[0]
    assert sorted(actions.split(", ")) == ["Dragon", "Phoenix"]


def test_several_words_that_are_no_actions_are_named_beside_what_was_done(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "hop || Up || jump\n", "sokoban")
    assert "did Up: reward -0.1 ('hop', 'jump' are no actions; the actions are: Up, Down, Left, Right)" in text


def test_below_each_prompt_stands_what_is_left_and_how_to_answer(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "Up\n", "sokoban")
    how = "(Type an action, such as `Up`, or several as `Up || Down`, without tags; Ctrl-D leaves)"
    assert "Reply: <think>why</think><answer>action || action</answer>\n" in text
    assert f"\n\n(turns left: 5, actions left: 10, at most 5 a turn)\n{how}\n> Up\n" in text
    assert f"Think, then answer.\n\n(turns left: 4, actions left: 9, at most 5 a turn)\n{how}\n" in text
    assert "||" not in play(monkeypatch, capsys, "", "bandit").partition("(Type")[2]


def test_a_near_miss_costs_nothing_and_tags_make_a_reply_be_taken_as_typed(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "phonix\n<answer>phonix</answer>\n", "bandit", "--no-thinking")
    assert "— nothing was played: 'phonix' is no action, did you mean `Phoenix`?\n" in text
    assert "did nothing: reward 0 and -0.1 for the format ('phonix' is no action; " in text


def test_the_end_says_what_was_spent_and_how_to_play_another_instance(monkeypatch, capsys):
    short = ("--env.max_turns", "1", "--env.max_actions", "2")
    text = play(monkeypatch, capsys, "Up || Down || Up\n", "frozen_lake-det", *short, "--seed", "3", "--no-thinking")
    assert "(beyond the limit of a turn, not played: 1)" in text
    assert "end: budget (no turns left)" in text
    again = " ".join(["ragen play frozen_lake-det", *short, "--no-thinking", "--seed", "4"])
    assert text.rstrip().endswith(f"another instance: {again}")


def test_a_tool_is_played_by_its_name_and_text(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "Query SELECT 7\nanswer\nquery\nask 3\nanswer SELECT 1\n", "sql")
    assert text.count("\n(Type `query SELECT * FROM ") == 2
    assert "— did query SELECT 7: reward 0\n\n7\n7\n" in text
    for line in ("`answer` needs the answer behind it.", "`query` needs its sql behind it.", "'ask' is no tool."):
        assert f"— nothing was played: {line} Type `query " in text
    assert "did answer SELECT 1" in text


@pytest.mark.parametrize("said", ["help", "?", "quit", "Exit", "q"])
@pytest.mark.parametrize("name", ["sokoban", "countdown", "sql", "webshop"])
def test_a_word_to_the_program_is_not_played(monkeypatch, capsys, said, name):
    text = play(monkeypatch, capsys, f"{said}\n", name)
    assert "nothing was played: Ctrl-D leaves; " in text
    assert text.rstrip().endswith("left.")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_long_lines_are_wrapped_to_a_terminal_and_grids_are_not_touched(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stdin", io.StringIO("search shoes\n"))
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "60")
    assert main(["play", "webshop"]) == 0
    text = screen.getvalue()
    assert max(map(len, text.split("\n"))) <= 60
    assert "Clickable: [Back to Search] [Next >]" in text
    screen.truncate(0)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert main(["play", "sokoban", "--env.symbols", "#.O√XPS", "--env.wording", "verbose"]) == 0
    assert "\n######\n" in screen.getvalue()


def test_ctrl_c_leaves_like_the_end_of_input_with_its_own_status(monkeypatch, capsys):
    def interrupted(_prompt):
        raise KeyboardInterrupt

    monkeypatch.setattr("builtins.input", interrupted)
    monkeypatch.setattr("sys.stdin", io.StringIO("Up\n"))
    assert main(["play", "sokoban"]) == 130
    assert capsys.readouterr().out.rstrip().endswith("left.")


def test_bytes_that_are_no_text_are_a_wrong_word_like_any_other(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\x00\n"), encoding="utf-8"))
    assert main(["play", "sokoban"]) == 0
    assert "is no action" in capsys.readouterr().out


def test_without_an_input_the_game_is_left(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", None)
    assert main(["play", "bandit"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("left.")


def test_an_environment_that_fails_is_blamed_and_the_player_is_not(monkeypatch, capsys, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(
        "from ragen import Environment, EnvSettings, Observation\n\n\n"
        "class Broken(Environment):\n"
        "    success = False\n\n"
        "    def reset(self, *, instance_seed, dynamics_seed):\n        return Observation('Go.')\n\n"
        "    def actions(self):\n        return ('a',)\n\n"
        "    def instructions(self):\n        return 'Say a.'\n\n"
        "    def step(self, action):\n        return 1 / 0\n"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("a\n"))
    assert main(["play", f"{file}:Broken"]) == 2
    told = capsys.readouterr()
    assert "ZeroDivisionError" in told.err
    assert "did nothing" not in told.out
