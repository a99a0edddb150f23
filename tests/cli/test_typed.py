"""What a person types is read with good will: completed, or a near miss that costs nothing; the rest stays as typed."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.cli.typed import how_to, possible, spoken, understood
from ragen.envs import Environment, ToolEnvironment, environment_factory, environments
from ragen.envs.check import HOSTILE
from ragen.text.parser import parse_reply
from ragen.tools import Tool, tool
from ragen.tools.call import Call

READY = [name for name in environments.names() if not name.startswith("gsm8k")]


def started(name: str, actions: Sequence[str] = ()) -> Environment:
    env = environment_factory({"name": name})()
    env.reset(instance_seed=0, dynamics_seed=0)
    for action in actions:
        env.step(action)
    return env


def actions_of(line: str, env: Environment) -> tuple[str, ...]:
    typed = understood(line, env, thinking=True)
    assert typed.reply is not None, typed.problem
    return parse_reply(typed.reply, thinking=True, calls=env.tools() is not None).actions


def problem_of(line: str, env: Environment) -> str:
    typed = understood(line, env, thinking=True)
    assert typed.reply is None, typed.reply
    return typed.problem


@pytest.mark.parametrize("name", READY)
def test_every_environment_offers_an_example_that_it_takes_as_typed(name: str) -> None:
    env = started(name)
    examples = [part.partition("`")[0] for part in how_to(env).split("`")[1::2]]
    assert examples
    for example in examples:
        for action in actions_of(example, env):
            assert env.match(action) is not None, (example, action)
    assert len(possible(env)) < 2000


@pytest.mark.parametrize("name", ["bandit", "frozen_lake", "2048", "sudoku", "countdown", "webshop", "sql", "wiki"])
@pytest.mark.parametrize("thinking", [True, False])
def test_text_of_any_kind_is_understood_and_never_raised(name: str, thinking: bool) -> None:
    env = started(name)
    for text in (*HOSTILE, "||", "[", "]", "click[", "search[]", "answer", "query {", "<tool_call>", "()", "\\"):
        typed = understood(text, env, thinking=thinking)
        assert (typed.reply is None) == bool(typed.problem)
        assert len(typed.problem) < 2000


@given(st.text(max_size=40))
def test_what_matches_is_played_and_a_reply_with_tags_stays_as_it_is(text: str) -> None:
    env = started("frozen_lake")
    typed = understood(text, env, thinking=True)
    word = env.match(text)
    if word is not None:
        assert typed.reply is not None
        assert [env.match(part) for part in parse_reply(typed.reply, thinking=True).actions] == [word]
    full = f"<think>x</think><answer>{text}</answer>"
    assert understood(full, env, thinking=True).reply == full


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("typed", ["Up", "Up || Left", " up. ", "a < b & c"])
def test_bare_actions_are_a_well_formed_reply(typed: str, thinking: bool) -> None:
    reply = understood(typed, started("sokoban"), thinking=thinking).reply
    assert reply is not None
    assert parse_reply(reply, thinking=thinking).answer == typed.strip()


@pytest.mark.parametrize(
    ("name", "line", "told"),
    [
        ("sokoban", "u", "'u' is no action, did you mean `Up`?"),
        ("sokoban", "UPP", "'UPP' is no action, did you mean `Up`?"),
        ("sokoban", "Up || dwon", "'dwon' is no action, did you mean `Down`?"),
        ("sokoban", "up, down", "'up, down': several actions are typed as `Up || Down`"),
        ("sokoban", "up -> up down", "several actions are typed as `Up || Up || Down`"),
        ("bandit", "phoenix dragon", "'phoenix dragon': one action a turn here, such as `Phoenix`"),
        ("sudoku", "132", "'132' is no action, did you mean `1 3 2`?"),
        ("sudoku", "1 1 1; 1 2 2", "several actions are typed as `1 1 1 || 1 2 2`"),
        ("webshop", "click back", "there is nothing to click on this page: here you type search[words], such as search["),
        ("webshop", "search", "`search` needs what to search: here you type search[words]"),
        ("webshop", "search[]", "`search` needs what to search: here you type search[words]"),
    ],
)
def test_a_near_miss_is_asked_again_with_what_it_may_mean(name: str, line: str, told: str) -> None:
    assert told in problem_of(line, started(name))


@pytest.mark.parametrize("line", ["jump", "hop || Up", "", "ups and downs"])
def test_what_is_like_no_action_is_played_as_an_agent_would(line: str) -> None:
    assert understood(line, started("sokoban"), thinking=True).reply == f"<think></think><answer>{line}</answer>"


@pytest.mark.parametrize(
    ("line", "action"),
    [
        *(
            (line, "search[red shoes]")
            for line in ("search red shoes", "Search: red shoes", "search[red shoes", "red shoes")
        ),
        *(
            (line, "search[red shoes]")
            for line in ("search (red shoes)", "SEARCH [red shoes]", "[red shoes]", "search[Red  Shoes]")
        ),
        ("searchlight", "search[searchlight]"),
    ],
)
def test_words_to_search_for_need_no_brackets(line: str, action: str) -> None:
    env = started("webshop")
    assert [env.match(part) for part in actions_of(line, env)] == [action]


@pytest.mark.parametrize(
    ("line", "action"),
    [
        *(
            (line, "click[Next >]")
            for line in ("click next >", "Click: Next >", "next >", "[Next >]", "click [next", "click[next >")
        ),
        ("back to search", "click[Back to Search]"),
    ],
)
def test_labels_to_click_need_no_brackets(line: str, action: str) -> None:
    env = started("webshop", ["search[leggings]"])
    assert [env.match(part) for part in actions_of(line, env)] == [action]


def test_a_label_with_the_wrong_letters_is_told_and_searching_is_for_its_own_page() -> None:
    env = started("webshop", ["search[leggings]"])
    asin = next(word for word in env.actions() if word.startswith("click[B0"))
    assert f"did you mean `{asin}`?" in problem_of(f"click {asin[6:-2]}", env)
    assert "did you mean `click[Back to Search]`?" in problem_of("back", env)
    told = problem_of("search red", env)
    assert told.startswith("there is nothing to search on this page: here you click [Back to Search] [Next >] [B0")
    assert all(word.partition("[")[2] in told for word in env.actions())


def test_examples_do_not_tell_the_article_that_the_question_hides() -> None:
    for seed in range(8):
        env = started("wiki-untitled")
        env.reset(instance_seed=seed, dynamics_seed=0)
        title = (env.content() or "").partition("\n")[0]
        assert title not in how_to(env)
        assert " or `read …` or " in how_to(env)
        assert how_to(env).startswith("Type `search ")
    assert "`read …`" not in how_to(started("wiki"))


class Desk(ToolEnvironment):
    """Tools with no argument, and with two."""

    def start(self, instance_seed: int, dynamics_seed: int) -> str:
        return "?"

    def tools(self) -> tuple[Tool, ...]:
        return TOOLS

    def judge(self, answer: str) -> float:
        return 0.0

    def actions(self) -> tuple[str, ...]:
        return (str(Call("add", {"left": 1, "right": 2})), str(Call("ring", {})))

    def instructions(self) -> str:
        return "Answer."


@tool
def ring() -> str:
    """Ring."""
    return "ding"


@tool
def add(left: int, right: int) -> int:
    """Add."""
    return left + right


@tool
def look(side: str, loud: bool = False) -> str:
    """Look."""
    return f"{side} {loud}"


@tool
def rest(hours: int = 1, place: str = "") -> str:
    """Rest."""
    return f"{hours} {place}"


TOOLS = (ring, add)
MANNERED = (look, rest)


def test_a_text_alone_is_the_one_argument_that_must_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Desk, "tools", lambda self: MANNERED)
    actions = (str(Call("look", {"side": "front"})), str(Call("rest", {"place": "bed"})))
    monkeypatch.setattr(Desk, "actions", lambda self: actions)
    env = Desk()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert how_to(env).startswith('Type `look front` or `rest {"place": "bed"}` or ')
    assert actions_of("look front", env) == (str(Call("look", {"side": "front"})),)
    assert actions_of('rest {"place": "bed"}', env) == ('{"name": "rest", "arguments": {"place": "bed"}}',)
    assert actions_of("rest", env) == ('{"name": "rest", "arguments": {}}',)
    assert "`look` needs its side behind it." in problem_of("look", env)
    assert '`rest` needs JSON, {"hours": …, "place": …}, behind it.' in problem_of("rest bed", env)


def test_tools_take_json_where_one_text_does_not_say_it_all() -> None:
    env = Desk()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert actions_of("ring", env) == (str(Call("ring", {})),)
    assert actions_of('add {"left": 1, "right": 2}', env) == ('{"name": "add", "arguments": {"left": 1, "right": 2}}',)
    assert '`add` needs JSON, {"left": …, "right": …}, behind it.' in problem_of("add 1 2", env)
    assert "`ring` takes nothing behind it." in problem_of("ring twice", env)
    assert "did you mean `ring`?" in problem_of("rin", env)
    assert how_to(env) == 'Type `ring {}` or `add {"left": 1, "right": 2}` or `answer …`, without tags'


@pytest.mark.parametrize("call", ['{"name": "say", "arguments": {"text": "{1}"}}', "no call"])
def test_a_call_that_cannot_be_spoken_plainly_stays_json(call: str) -> None:
    assert spoken(call) in (call, 'say {"text": "{1}"}')
