"""A person plays what an agent plays: same prompts, rules and penalties."""

import io

import pytest

from ragen.cli.main import main
from ragen.cli.play import wrapped
from ragen.envs import environment_factory
from ragen.rollout.runner import make_task
from ragen.seeding import derive
from ragen.text.parser import parse_reply
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
    assert text.rstrip().endswith("left.")


def test_a_shop_is_played_with_bare_labels_and_words(monkeypatch, capsys):
    typed = "leggings\nnext >\nB0\nback to search\nclick[x]\n"
    text = play(monkeypatch, capsys, typed, "webshop", "--env.observation", "compact")
    assert "or only what would stand in its brackets" in text
    for told in ("did search[leggings]: reward 0", "did click[Next >]", "did nothing", "did click[Back to Search]"):
        assert told in text


def test_without_thinking_the_prompt_asks_for_none(monkeypatch, capsys):
    text = play(monkeypatch, capsys, "Dragon\n", "bandit", "--no-thinking")
    assert "<think>" not in text
    assert "did Dragon" in text


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("typed", ["Up", "Up || Left", " up. ", "a < b & c"])
def test_bare_actions_are_a_well_formed_reply_and_full_replies_stay_as_typed(typed, thinking):
    assert parse_reply(wrapped(typed, thinking=thinking), thinking=thinking).answer == typed.strip()
    full = f"<think>x</think><answer>{typed}</answer>"
    assert wrapped(full, thinking=thinking) == full


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


def test_the_hint_to_type_actions_only_stands_below_each_prompt_and_names_no_separator_where_one_action_is_allowed(
    monkeypatch, capsys
):
    hint = "(here only the action, without tags"
    text = play(monkeypatch, capsys, "Up\n", "sokoban")
    assert text.count(f"{hint}, or several as Up || Down") == 2
    assert text.index("Reply:") < text.index(hint)
    assert "||" not in play(monkeypatch, capsys, "", "bandit").partition(hint)[2]


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
