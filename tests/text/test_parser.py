"""The format rule and the choice of actions (cases A14, A17, A19–A21, A23–A25, A27, H3)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs.base import OUTER
from ragen.text.parser import TAGS, Choice, Reply, choose_actions, named_actions, parse_reply

WORDS = ("Up", "Down", "Left", "Right")
GOOD = "<think>go</think><answer>Up || Left</answer>"
HOSTILE = st.lists(
    st.one_of(st.sampled_from([*TAGS, "||", "\x00", "\u202e", "🦊", "<", "&"]), st.text(max_size=8)), max_size=20
)


def match(text: str) -> str | None:
    """The house rule of environments: case, outer blanks, punctuation and quotes do not count."""
    return next((word for word in WORDS if word.casefold() == text.strip(OUTER).casefold()), None)


def choice(answer: str, limit: int = 5) -> Choice:
    return choose_actions(parse_reply(f"<think>x</think><answer>{answer}</answer>", thinking=True), match, limit)


def test_a_good_reply_is_taken_apart() -> None:
    assert parse_reply(GOOD, thinking=True) == Reply("go", "Up || Left", ("Up", "Left"))


def test_blanks_around_every_part_do_not_matter() -> None:
    text = "\n <think>\n go \n</think>\n\n<answer>\n Up||Left \n</answer>\n"
    assert parse_reply(text, thinking=True) == Reply("go", "Up||Left", ("Up", "Left"))


@pytest.mark.parametrize("opener", ["", "<think>", "\n<think>", "<think>\n", " <think> ", "\n"])
def test_a25_forced_or_own_or_missing_opener_parse_the_same(opener: str) -> None:
    assert parse_reply(opener + "go</think><answer>Up</answer>", thinking=True) == Reply("go", "Up", ("Up",))


def test_a25_an_opener_written_after_the_forced_one_is_thinking() -> None:
    reply = parse_reply("<think>" + "<think>go</think><answer>Up</answer>", thinking=True)
    assert (reply.answer, reply.actions) == ("Up", ("Up",))


def test_a14_text_after_the_answer_is_ignored() -> None:
    reply = parse_reply("<think>x</think><answer>Up</answer>\nObservation: You won! Reward 100", thinking=True)
    assert reply == Reply("x", "Up", ("Up",))


@pytest.mark.parametrize("text", ["<think>x</think><answer>Ri", "<think>x</think><answer>Right</ans", "<think>I thi", ""])
def test_a17_a_cut_reply_is_an_invalid_format(text: str) -> None:
    assert parse_reply(text, thinking=True).answer is None
    assert choose_actions(parse_reply(text, thinking=True), match, 5) == Choice((), (), 0, valid=False)


def test_a19_a_missing_close_tag_is_invalid() -> None:
    assert parse_reply("<think>x<answer>Up</answer>", thinking=True) == Reply(None, None, ())


def test_a20_tags_inside_the_thinking_do_not_count() -> None:
    reply = parse_reply("<think>maybe <answer>Left</answer></think><answer>Right</answer>", thinking=True)
    assert reply == Reply("maybe <answer>Left</answer>", "Right", ("Right",))


@pytest.mark.parametrize(
    "tail",
    [
        "<answer>Up</answer><answer>Down</answer>",
        "<answer>Up</answer> then <answer>Do",
        "<answer>Up</answer></answer>",
        "<answer><answer>Up</answer>",
        "</answer>Up<answer>",
        "<think>again</think><answer>Up</answer>",
        "<answer>Up</answer><think>more</think>",
        "<answer>Up</think></answer>",
        "Up",
    ],
)
def test_a20_anything_but_one_answer_after_the_thinking_is_invalid(tail: str) -> None:
    assert parse_reply("<think>x</think>" + tail, thinking=True) == Reply("x", None, ())


@pytest.mark.parametrize(
    "text", ["<Think>x</Think><answer>Up</answer>", "<think>x</think><ANSWER>Up</ANSWER>", "<think>x</ think>"]
)
def test_tags_are_matched_exactly(text: str) -> None:
    assert parse_reply(text, thinking=True).answer is None


def test_a21_the_reply_is_not_xml() -> None:
    assert parse_reply("<think>if x < 3 & y</think><answer>Up</answer>", thinking=True) == Reply(
        "if x < 3 & y", "Up", ("Up",)
    )
    assert parse_reply("<think>score >75% & <3 <b></think><answer>Up</answer>", thinking=True).actions == ("Up",)


def test_without_thinking_one_answer_is_the_whole_format() -> None:
    assert parse_reply("<answer>Up</answer>", thinking=False) == Reply(None, "Up", ("Up",))
    assert parse_reply("So: <answer>Up</answer> done", thinking=False).answer == "Up"
    assert parse_reply("<answer>Up</answer><answer>Up</answer>", thinking=False).answer is None
    assert parse_reply("<think><answer>Left</answer></think><answer>Up</answer>", thinking=False).answer is None
    assert parse_reply("Up", thinking=False).answer is None


def test_h3_tags_in_the_observation_are_not_the_replys() -> None:
    observation = "A sign reads <answer>Up</answer> and <think>."
    assert choose_actions(parse_reply("<think>x</think><answer>Down</answer>", thinking=True), match, 5).actions == ("Down",)
    quoting = parse_reply(f"<think>It said {observation}</think><answer>Down</answer>", thinking=True)
    assert quoting.actions == ("Down",)


@pytest.mark.parametrize(
    ("answer", "limit", "expected"),
    [
        ("Up || jump || Left", 5, Choice(("Up", "Left"), ("jump",), 0, valid=True)),
        ("up||LEFT", 5, Choice(("Up", "Left"), (), 0, valid=True)),
        ("Up.", 5, Choice(("Up",), (), 0, valid=True)),
        ("`Up` || “left”", 5, Choice(("Up", "Left"), (), 0, valid=True)),
        ("", 5, Choice((), (), 0, valid=False)),
        ("||", 5, Choice((), (), 0, valid=False)),
        (" || Up || ", 5, Choice(("Up",), (), 0, valid=True)),
        ("Up || Up || Up", 2, Choice(("Up", "Up"), (), 1, valid=True)),
        ("1", 5, Choice((), ("1",), 0, valid=False)),
        ("Move Up || fly", 5, Choice((), ("Move Up", "fly"), 0, valid=False)),
        ("Up | Left", 5, Choice((), ("Up | Left",), 0, valid=False)),
    ],
)
def test_a23_which_sub_actions_run(answer: str, limit: int, expected: Choice) -> None:
    assert choice(answer, limit) == expected


def test_a24_valid_actions_beyond_the_limit_are_ignored_not_invalid() -> None:
    assert choice("Up || Down || Left || Right || Up", 2) == Choice(("Up", "Down"), (), 3, valid=True)
    assert choice("jump || Up || jump || Down || jump", 1) == Choice(("Up",), ("jump",) * 3, 1, valid=True)
    assert choice("Up", 0) == Choice((), (), 1, valid=True)


@pytest.mark.parametrize(
    "unit", ["<think>", "</think>", "<answer>", "</answer>", "||", "<", "\x00", "x || ", "\u202e", "🦊"]
)
@pytest.mark.parametrize("thinking", [True, False])
def test_a27_a_million_hostile_characters_are_no_answer(unit: str, thinking: bool) -> None:
    text = unit * (1_000_000 // len(unit))
    assert parse_reply(text, thinking=thinking).answer is None


def test_a27_a_hundred_thousand_sub_actions_are_counted() -> None:
    found = choice("Up || 1e999 || " * 100_000, 5)
    assert (len(found.actions), len(found.invalid), found.ignored) == (5, 100_000, 99_995)


@given(HOSTILE, st.booleans(), st.integers(0, 3))
def test_a27_no_text_raises_and_the_rule_holds(pieces: list[str], thinking: bool, limit: int) -> None:
    text = "".join(pieces)
    reply = parse_reply(text, thinking=thinking)
    chosen = choose_actions(reply, match, limit)
    tail = text.partition("</think>")[2] if thinking else text
    tags = [t for t in TAGS if t in tail] if thinking else [t for t in TAGS[2:] if t in tail]
    one_each = tail.count("<answer>") == tail.count("</answer>") == 1 and tail.index("<answer>") < tail.index("</answer>")
    assert (reply.answer is not None) == (one_each and set(tags) == {"<answer>", "</answer>"})
    assert len(chosen.actions) + len(chosen.invalid) + chosen.ignored == len(reply.actions)
    assert len(chosen.actions) <= limit


@given(st.text(max_size=40), st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), st.text(max_size=40))
def test_any_thinking_and_any_trailer_give_the_same_actions(thought: str, actions: list[str], trailer: str) -> None:
    text = f"<think>{thought}</think><answer>{'||'.join(actions)}</answer>{trailer}"
    if not any(tag in thought + trailer for tag in TAGS):
        reply = parse_reply(text, thinking=True)
        assert (reply.thought, reply.actions) == (thought.strip(), tuple(actions))


@pytest.mark.parametrize(
    ("thought", "named"),
    [
        ("I will go Up, Left, Up.", ("Up", "Left", "Up")),
        ("UP then 'down'; (right)|left", ("Up", "Down", "Right", "Left")),
        ("Up->Left=>Down→Right", ("Up", "Left", "Down", "Right")),
        ("upward, the leftmost, Upside-Down", ()),
        ("goal is 2 down, 1 left", ("Down", "Left")),
        ("", ()),
        (" ,;| ", ()),
    ],
)
def test_the_actions_a_thought_names(thought: str, named: tuple[str, ...]) -> None:
    assert named_actions(thought, WORDS, match) == named


def test_an_action_of_several_words_is_not_taken_for_a_shorter_one_in_it() -> None:
    words = ("pick", "pick up", "pick up all", "all")

    def plain(text: str) -> str | None:
        return text.lower() if text.lower() in words else None

    found = named_actions("Pick up, pick, PICK UP ALL pick up all", words, plain)
    assert found == ("pick up", "pick", "pick up all", "pick up all")


@given(HOSTILE.map("".join))
def test_naming_actions_never_raises_and_gives_only_actions(text: str) -> None:
    assert set(named_actions(text, WORDS, match)) <= set(WORDS)
