"""GSM8K: reading its files, what counts as the same number, the oracle and the floor."""

import json
import os
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tools.sandbox.test_hostile import refusal

from ragen.envs import check_environment, environment_factory, environments
from ragen.envs.gsm8k.env import VAGUE
from ragen.envs.gsm8k.problems import load_problems
from ragen.envs.numbers import numbers, read_answer
from ragen.episode import Completion, StopReason
from ragen.errors import ConfigError, SandboxError
from ragen.rollout.contexts import MessageContext
from ragen.rollout.demonstrations import play, players_of, random_player
from ragen.rollout.instances import evaluation_specs
from ragen.rollout.runner import EpisodeRunner, EpisodeSpec, Rules
from ragen.seeding import generator
from ragen.tools.call import Call, final
from ragen.tools.sandbox import run

DATA = Path(os.environ.get("RAGEN_DATA", Path(__file__).parents[2].parent / "shared" / "data")) / "gsm8k"
RECORDS = [
    {"question": "2 hens lay 3 eggs each. How many?", "answer": "2*3=<<2*3=6>>6 eggs.\n#### 6"},
    {"question": "A car costs $1,000 and a ring 2.50. Both?", "answer": "Sum: <<1000+2.5=1002.5>>1,002.5\n#### 1,002.5"},
    {
        "question": "5 boys lose 9 marbles. How many are left of 4?",
        "answer": "They lose <<9=9>>9.\nLeft: 4-9=<<4-9=-5>>-5\nThat is <<x=1>>odd\n#### -5",
    },
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "train.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", ["gsm8k", "gsm8k-plain"])
def test_it_keeps_the_contract(file: str, name: str) -> None:
    assert check_environment(environment_factory({"name": name, "file": file}), seeds=range(12)) == []


@pytest.mark.skipif(bool(refusal()), reason=refusal())
def test_with_python_programs_are_run_in_the_sandbox(file: str) -> None:
    make = environment_factory({"name": "gsm8k-python", "file": file})
    assert check_environment(make, seeds=range(2)) == []
    env = make()
    question = env.reset(instance_seed=0, dynamics_seed=0).text
    plan = env.plan() or ()
    assert all(action.startswith('{"name": "python", "arguments": {"code": "print(') for action in plan)
    steps = [env.step(action) for action in plan]
    calculations = next(record["answer"] for record in RECORDS if record["question"] == question)
    assert all(f"={step.observation}>>" in calculations for step in steps)
    hidden = env.step(str(Call("python", {"code": "import os; print(os.path.exists('/etc/passwd'))"})))
    assert hidden.observation == "False"
    failed = env.step(str(Call("python", {"code": "1 / 0"})))
    assert failed.observation.splitlines()[-2:] == ["ZeroDivisionError: division by zero", "exit code 1"]
    result = play(evaluation_specs("gsm8k-python", episodes=1, samples=1, seed=0)[0], make, players_of(env)["optimal"])
    assert result == (True, 1.0)


def test_with_python_a_machine_without_walls_is_refused_at_the_start(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    run.check.cache_clear()
    with pytest.raises(SandboxError, match="no sandbox on darwin"):
        environment_factory({"name": "gsm8k-python", "file": file})
    monkeypatch.undo()
    run.check.cache_clear()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        (" $18. ", 18),
        ("18.00 dollars", 18),
        ("18 eggs", 18),
        ("The answer is 18!", 18),
        ("1,234,567", 1234567),
        ("$-5", -5),
        ("-$5", -5),
        ("−5", -5),
        ("3/4", Fraction(3, 4)),
        ("16 - 3 - 4 = 9", 9),
        ("x = 9 = 9.0", 9),
        ("#### 7", 7),
        ("75%", 75),
        ("25 m2", 25),
        ("0.5", Fraction(1, 2)),
        ("17 or 18", None),
        ("18 18", None),
        ("16 - 3", None),
        ("1,23", None),
        ("12:30", None),
        ("eighteen", None),
        ("m2", None),
        ("", None),
        ("= ", None),
        ("3/0", None),
        ("2e3", None),
        ("1.5E-3", None),
        ("3e", None),
    ],
)
def test_the_number_of_an_answer(text: str, value: int | Fraction | None) -> None:
    assert read_answer(text) == value


@given(st.integers(-(10**9), 10**9), st.sampled_from(["", "$", "€"]), st.sampled_from(["", " eggs", ".00", "%", " km"]))
def test_commas_signs_and_units_do_not_matter(number: int, sign: str, unit: str) -> None:
    for shown in (f"{number:,}", str(number)):
        assert read_answer(f"so {sign}{shown}{unit}") == number
        assert read_answer(f"so {sign}{shown}1{unit}") != number


@given(st.text(max_size=200))
def test_a27_any_text_is_read(text: str) -> None:
    assert all(isinstance(number, Fraction) for number in numbers(text))
    read_answer(text)


def test_a_file_is_read_with_its_calculations_and_without_their_marks(file: str) -> None:
    first, second, third = load_problems(file)
    assert (first.calculations, first.lines, first.answer) == (("2*3",), ("2*3=6 eggs.",), 6)
    assert (second.answer, third.answer) == (Fraction(2005, 2), -5)
    assert third.calculations == ("9", "4-9", "x")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2"),
        ("[]", "line 2: it is no object"),
        ('{"question": "x"}', "line 2: 'question' or 'answer' is missing"),
        ('{"question": " ", "answer": "#### 1"}', "line 2: 'question' or 'answer'"),
        ('{"question": "x", "answer": "1"}', "line 2: its answer does not end in"),
        ('{"question": "x", "answer": "#### one"}', "line 2: its answer does not end in"),
    ],
)
def test_a_faulty_line_is_named(tmp_path: Path, line: str, why: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"{json.dumps(RECORDS[0])}\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=why) as caught:
        load_problems(str(path))
    assert "grade-school-math" in str(caught.value)


@pytest.mark.parametrize("name", ["", "nowhere.jsonl", ".", "~nobody_there/x", "a\x00b"])
def test_a_file_that_is_not_there_is_one_message_that_says_where_to_get_it(name: str) -> None:
    with pytest.raises(ConfigError, match=r"env\.file .*https://github\.com/openai/grade-school-math"):
        environment_factory({"name": "gsm8k", "file": name})


def test_an_empty_file_and_a_difficulty_that_leaves_nothing_are_refused(tmp_path: Path, file: str) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(ConfigError, match="holds no problem"):
        environment_factory({"name": "gsm8k", "file": str(empty)})
    with pytest.raises(ConfigError, match=r"env\.min_steps is 9"):
        environment_factory({"name": "gsm8k", "file": file, "min_steps": 9})
    env = environment_factory({"name": "gsm8k", "file": file, "max_steps": 1, "min_steps": 1})()
    assert {env.reset(instance_seed=seed, dynamics_seed=0).text for seed in range(30)} == {
        r["question"] for r in RECORDS[:2]
    }


def test_the_oracle_calculates_what_can_be_calculated_and_answers(file: str) -> None:
    env = environment_factory({"name": "gsm8k", "file": file, "min_steps": 3})()
    env.reset(instance_seed=0, dynamics_seed=0)
    plan = env.plan()
    assert plan == tuple(str(Call("calculator", {"expression": each})) for each in ("9", "4-9"))
    rng = generator(0)
    assert env.thought(rng, plan) == "They lose 9."
    assert env.thought(rng, env.actions()[:1]) in VAGUE  # random play teaches the format, not a solution
    assert [env.step(action).observation for action in plan] == ["9", "-5"]
    assert env.thought(rng, env.plan()) == "That is odd"
    assert env.plan() == (final("-5"),)
    assert env.step(final("it is -5.0 marbles")).reward == 1.0
    assert env.success


@pytest.mark.parametrize(
    ("number", "told"), [("1/3", "1/3"), ("0.00001", "1/100000"), ("1234567890.1234", "6172839450617/5000"), ("2.50", "2.5")]
)
def test_the_right_answer_is_told_so_that_it_is_right(tmp_path: Path, number: str, told: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"question": "How much?", "answer": f"#### {number}"}))
    env = environment_factory({"name": "gsm8k", "file": str(path)})()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.plan() == (final(told),)
    assert env.step(final(told)).reward == 1.0


@pytest.mark.parametrize("budget", [{"max_turns": 1}, {"max_actions": 1}, {"max_actions_per_turn": 1}, {"max_turns": 2}])
def test_the_oracle_answers_within_any_budget(file: str, budget: dict[str, int]) -> None:
    make = environment_factory({"name": "gsm8k", "file": file, **budget})
    for spec in evaluation_specs("gsm8k", episodes=12, samples=1, seed=0):
        env = make()
        env.reset(instance_seed=spec.instance_seed, dynamics_seed=0)
        assert play(spec, make, players_of(env)["optimal"]) == (True, 1.0)


def test_without_tools_there_is_only_the_answer(file: str) -> None:
    env = environment_factory({"name": "gsm8k-plain", "file": file})()
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.tools() == ()
    assert env.match(str(Call("calculator", {"expression": "1"}))) is None
    assert "there is no tool 'calculator'" in env.problem(str(Call("calculator", {"expression": "1"})))
    assert all("answer" in action for action in env.actions())
    rules = Rules(100, 10_000)
    spec = EpisodeSpec("gsm8k-plain", 0, 0, instance_seed=0, dynamics_seed=0, sampling_seed=0)
    runner = EpisodeRunner(spec, env, MessageContext(rules.context), rules)
    assert "Reply: <think>why</think><answer>your answer</answer>.\n" in runner.context.shown
    assert "tool" not in runner.context.shown.lower()
    runner.apply(Completion((), (), (), f"<think>x</think><answer>{env.solution()} || 0</answer>", StopReason.END))
    assert (runner.turns[0].valid, runner.turns[0].reward) == (True, 0.0)  # two numbers; the answer is one text, not actions


@pytest.mark.skipif(
    not DATA.is_dir(), reason="needs gsm8k/{train,test}.jsonl of github.com/openai/grade-school-math in $RAGEN_DATA"
)
@pytest.mark.parametrize(("name", "count"), [("train", 7473), ("test", 1319)])
def test_every_published_problem_is_read_and_its_calculations_are_right(name: str, count: int) -> None:
    path = str(DATA / f"{name}.jsonl")
    problems = load_problems(path)
    assert len(problems) == count
    assert all(read_answer(str(problem.answer)) == problem.answer for problem in problems)
    make = environment_factory({"name": "gsm8k", "file": path})
    specs = evaluation_specs("gsm8k", episodes=100, samples=1, seed=1)
    env = make()
    env.reset(instance_seed=0, dynamics_seed=0)
    best, floor = players_of(env)["optimal"], players_of(env)["last_number"]
    assert all(play(spec, make, best)[0] for spec in specs)
    assert sum(play(spec, make, floor)[0] for spec in specs) < 10
    assert sum(play(spec, make, random_player)[0] for spec in specs) < 10


def test_it_is_listed_with_what_it_needs() -> None:
    assert "env.file" in environments.get("gsm8k").about


def test_a_line_ends_only_where_json_lines_do(tmp_path: Path) -> None:
    """A separator of Unicode (U+2028, U+0085) may stand in a JSON text as it is."""
    path = tmp_path / "odd.jsonl"
    path.write_text('{"question": "Two\u2028and\u0085two?", "answer": "#### 4"}\r\n', encoding="utf-8", newline="")
    (problem,) = load_problems(str(path))
    assert problem.answer == 4
