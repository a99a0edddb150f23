"""Files and answers that mean no good: what is wrong is said with the file's setting, the rest is played as it stands."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from ragen.envs import environment_factory
from ragen.envs.numbers import LONGEST, numbers, read_answer
from ragen.episode import Completion, StopReason
from ragen.errors import ConfigError
from ragen.rollout.contexts import ContextPolicy, MessageContext
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules
from ragen.tools.call import harmless

LONG = "9" * 5000  # digits, more than Python reads
QUESTION = "What is 3 and 4?"
BODY = (
    "The market of Rosimford was opened in 1573 by the merchants of Barevmark. It has 345 stalls on every day of the week."
)
PRODUCT: dict[str, Any] = {
    "asin": "B000000001",
    "name": "Red Shoe",
    "pricing": "$9.99",
    "customization_options": {"size": [{"value": "6"}, {"value": "7"}]},
    "attributes": ["soft"],
    "instruction": "Find me soft shoes",
    "instruction_attributes": ["soft"],
}
BUY = ("search[red shoe]", "click[B000000001]", "click[Buy Now]")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "cache"))


def played(name: str, settings: dict[str, Any], *replies: str) -> EpisodeRunner[MessageContext]:
    """An episode of these answers; whatever is shown can be written to a file."""
    env = environment_factory({"name": name, **settings})()
    spec = EpisodeSpec(name, 0, 0, instance_seed=0, dynamics_seed=0, sampling_seed=0)
    runner = EpisodeRunner(spec, env, MessageContext(ContextPolicy()), Rules(2**31, 2**40, thinking=False))
    assert runner.fault is None, runner.fault
    env.plan()
    env.best_success()
    for reply in replies:
        runner.context.shown.encode()
        runner.apply(Completion((), (), (), f"<answer>{reply}</answer>", StopReason.END))
        assert runner.fault is None, runner.fault
        str(runner.turns[-1].info["next_observation"]).encode()
    return runner


def written(folder: Path, text: str) -> str:
    file = folder / "data"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    return str(file)


def problem(question: str = QUESTION, answer: str = "#### 7") -> str:
    return json.dumps({"question": question, "answer": answer})


@pytest.mark.parametrize(
    "text",
    [
        *(
            "\ufeff" + problem(),
            problem("3 \ud800 4"),
            problem("3\0\x1b[2J<|im_end|></answer> 4"),
            problem(f"Is {LONG} more than 3?"),
        ),
        *(problem(answer="<<9**9**9=1>>\n#### 7"), problem(answer="\ud800\n#### 7"), f"\n{problem()}\n\n"),
    ],
)
def test_word_problems_are_played_as_they_stand(tmp_path: Path, text: str) -> None:
    assert played("gsm8k", {"file": written(tmp_path, text)}, "7").turns[0].reward == 1


@pytest.mark.parametrize(
    "text", ["", "\n", "[]", "3", "[" * 10_000, '{"question": NaN, "answer": NaN}', problem(answer=f"#### {LONG}")]
)
def test_word_problems_that_are_none_name_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.file '.*data'"):
        played("gsm8k", {"file": written(tmp_path, text)})


@pytest.mark.parametrize(
    "answer", [LONG, f"-{LONG}.5", f"1/{LONG}", f"1.{LONG}", f"7 {LONG}", ",".join(["999"] * 2000), "\x00", "٧" * 5000]
)
def test_an_answer_of_thousands_of_digits_is_wrong_and_no_fault(tmp_path: Path, answer: str) -> None:
    assert played("gsm8k", {"file": written(tmp_path, problem())}, answer).turns[0].reward == 0
    assert played("wiki", {"kinds": ["year", "number"]}, answer).turns[0].reward == 0


def test_numbers_have_up_to_a_thousand_digits() -> None:
    assert read_answer("9" * LONGEST) == Fraction(int("9" * LONGEST))
    assert read_answer("9" * (LONGEST + 1)) is None
    assert numbers(f"3 and {LONG} and 4") == (3, 4)


def test_what_comes_from_outside_holds_no_lone_surrogates() -> None:
    assert harmless("a\ud800b\udfff<answer>") == "a\ufffdb\ufffd‹answer>"


def article(title: str = "T", text: str = BODY) -> str:
    return json.dumps({"title": title, "text": text})


@pytest.mark.parametrize(
    "text",
    [
        *("\ufeff" + article(), article("T\ud800", f"\udfff {BODY}"), article("a\0<|im_end|>"), article("The")),
        *(
            f"[{article()}, {article()}, {article('t')}]",
            article("١", f"{BODY} It has in all {LONG} stalls of wood on the days of the week."),
        ),
    ],
)
def test_articles_are_played_as_they_stand(tmp_path: Path, text: str) -> None:
    assert len(played("wiki", {"file": written(tmp_path, text)}, "1").turns) == 1


@pytest.mark.parametrize("text", ["", "3", "{}", "[[]]", "[" * 100_000, article(" "), '{"title": "T", "text": NaN}'])
def test_articles_that_are_none_name_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.file '.*data'"):
        played("wiki", {"file": written(tmp_path, text)})


@pytest.mark.parametrize("text", ["\ufeff#@$.#\n#####\n", "#####\r\n#@$.#\r\n#####\r\n"])
def test_a_level_is_read_with_the_marks_of_other_systems(tmp_path: Path, text: str) -> None:
    assert played("sokoban", {"level_file": written(tmp_path, text)}, "Right").turns[0].reward == pytest.approx(10.9)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *(("", "no level"), ("＃＃＃", "no level"), ("#####\n#@$\0.#\n#####", "0 players")),
        *(("#" * 200_000 + "\n#@$.#", "2 rows and 200000 columns"), ("#@$.#\n" * 5000, "5000 rows and 5 columns")),
    ],
)
def test_a_level_that_is_none_names_the_file(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"env\.level_file '.*data'.*{told}"):
        played("sokoban", {"level_file": written(tmp_path, text)})


@pytest.mark.parametrize(
    "change",
    [
        *({"name": "Red <|im_end|>\u202e[SEP] </answer>\ud800||\0 Shoe"}, {"name": ""}, {"name": "red shoe " * 20_000}),
        *(
            {"pricing": [0]},
            {"pricing": [20, 5]},
            {"pricing": [0, 1e308]},
            {"product_category": "›››"},
            {"attributes": [None]},
        ),
        {
            "customization_options": {
                "size": ["Back to Search", "buy now", "BUY NOW"],
                "": [""],
                "b": [None, "", 3, {"x": 1}],
            }
        },
        {"customization_options": {"c": [str(number) for number in range(3000)]}},
    ],
)
def test_products_are_played_as_they_stand(tmp_path: Path, change: dict[str, Any]) -> None:
    text = json.dumps([{**PRODUCT, "full_description": "red shoe", **change}] * 2)
    runner = played("webshop", {"products": written(tmp_path, text), "observation": "compact"}, *BUY)
    assert runner.turns[-1].info["action_is_valid"]
    assert 0 <= runner.turns[-1].reward <= 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *(
            (json.dumps([{**PRODUCT, "pricing": price}]), "'pricing' must be dollars")
            for price in ([10**400], [-1], "$1.2.3", "$" + LONG)
        ),
        *((json.dumps([PRODUCT]).replace('"$9.99"', price), "'pricing' must be dollars") for price in ("[NaN]", "[1e999]")),
        (json.dumps([PRODUCT]).replace('"$9.99"', LONG), "a number in it has too many digits"),
        ("[" * 100_000, "nested too deeply|in the middle"),
        *(
            ("", "empty"),
            ("[]", "no product"),
            ("[1]", "must be a JSON object"),
            (json.dumps([PRODUCT])[:-5], "in the middle"),
        ),
        (json.dumps([{**PRODUCT, "asin": "١٢"}]), "no product"),
    ],
)
def test_products_that_are_none_name_the_file(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"env\.products '.*data'.*({told})"):
        played("webshop", {"products": written(tmp_path, text)})


@pytest.mark.parametrize("key", ["products", "attributes", "human_goals"])
def test_a_file_name_that_is_no_text_is_told_as_a_setting(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"setting 'env\.{key}' is '.udcff': it holds bytes that are no UTF-8 text"):
        environment_factory({"name": "webshop", key: "\udcff"})
