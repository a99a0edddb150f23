"""Countdown: exact values, expressions that are only read, instances that need their numbers, an exhaustive search."""

from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen.envs import environment_factory
from ragen.envs.countdown import Countdown, CountdownSettings
from ragen.envs.countdown.expressions import leaves, make_instance, parsed, solve, spelled, value
from ragen.errors import ConfigError, EnvironmentFault


def worth(text: str) -> Fraction | None:
    tree = parsed(text)
    assert tree is not None
    return value(tree)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("1 + 2 * 3", Fraction(7)),
        ("(1 + 2) * 3", Fraction(9)),
        ("8 - 3 - 2", Fraction(3)),
        ("8 / 4 / 2", Fraction(1)),
        ("1 / 3 * 3", Fraction(1)),
        ("7 / 2", Fraction(7, 2)),
        ("2 × 3 − 1", Fraction(5)),
        ("8 ÷ 2", Fraction(4)),
        (" (3+5)*3 = 24. ", Fraction(24)),
        ("1 / (2 - 2)", None),
    ],
)
def test_values_are_exact(text: str, result: Fraction | None) -> None:
    assert worth(text) == result


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "1 +", "-3 + 4", "2 ** 3", "7 // 2", "1.5 + 2", "f(1)", "(1)(2)", "1, 2", "[1]", "007", "1 if 1 else 2"),
        *("__import__('os')", "(" * 119, "1" + "+1" * 200, "１ + 1", "1_0", "0x10", "1 < 2", "\x00", "1 + = 2", "= 2"),
    ],
)
def test_what_is_no_expression(text: str) -> None:
    assert parsed(text) is None


@pytest.mark.parametrize("text", [f"1{' ' * 200_000}1", f"1 ={' ' * 200_000}x", f"1{'= ' * 100_000}x"])
def test_h5_blanks_of_any_number_are_passed_over_once(text: str) -> None:
    """Looked at in the square of their number, 200,000 of them would take an hour."""
    assert parsed(text) is None


def test_one_spelling_a_tree() -> None:
    env = Countdown()
    assert [env.match(text) for text in ("((1+2))*3", " ( 1 + 2 ) × 3 = 9", "1+(2*3)", "8-(3-2)", "8 - 3 - 2")] == [
        "(1 + 2) * 3",
        "(1 + 2) * 3",
        "1 + 2 * 3",
        "8 - (3 - 2)",
        "8 - 3 - 2",
    ]


def test_a_long_sum_written_without_blanks_is_an_action_in_its_spelling_too() -> None:
    env = Countdown()
    env.reset(instance_seed=0, dynamics_seed=0)
    action = env.match("+".join(["1"] * 60))
    assert action is not None
    assert env.match(action) == action
    assert env.step(action).info["action_is_valid"]


def joined(parts: tuple[str, str, str]) -> str:
    return f"({' '.join(parts)})"


whole = st.integers(1, 30).map(str)
expressions = st.recursive(whole, lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(joined), max_leaves=6)


@given(expressions)
def test_a_spelling_means_the_same_and_is_its_own(text: str) -> None:
    tree = parsed(text)
    if tree is None:
        assert len("".join(text.split())) > 120
        return
    again = parsed(spelled(tree))
    assert again is not None
    assert (value(again), leaves(again), spelled(again)) == (value(tree), leaves(tree), spelled(tree))


def everything(numbers: tuple[Fraction, ...]) -> set[Fraction]:
    """All values of all expressions of all the numbers, by brute force: any two become one."""
    if len(numbers) == 1:
        return {numbers[0]}
    found: set[Fraction] = set()
    for i, j in combinations(range(len(numbers)), 2):
        rest = tuple(number for k, number in enumerate(numbers) if k not in (i, j))
        a, b = numbers[i], numbers[j]
        made = {a + b, a - b, b - a, a * b} | ({a / b} if b else set()) | ({b / a} if a else set())
        for each in made:
            found |= everything((*rest, each))
    return found


@pytest.mark.parametrize("numbers", [(3,), (2, 5), (4, 4), (1, 2, 3), (5, 5, 5), (7, 2, 9), (1, 1, 2, 2), (3, 5, 7, 2)])
def test_the_search_finds_exactly_what_there_is(numbers: tuple[int, ...]) -> None:
    there = everything(tuple(map(Fraction, numbers)))
    wanted = {*there, *map(Fraction, range(-30, 120)), Fraction(1, 3), Fraction(0)}
    for target in wanted:
        found = solve(numbers, target)
        assert (found is not None) == (target in there), target
        if found is not None:
            tree = parsed(found)
            assert tree is not None
            assert value(tree) == target
            assert sorted(leaves(tree)) == sorted(numbers)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_instances_are_solvable_and_need_their_numbers(count: int) -> None:
    for seed in range(12):
        numbers, target = make_instance(seed, count, 25, 10, 99)
        assert len(numbers) == count
        assert 10 <= target <= 99
        assert solve(numbers, Fraction(target)) is not None
        for size in range(1, min(count, 4)):
            for part in combinations(map(Fraction, numbers), size):
                assert Fraction(target) not in everything(part)


def started(numbers: tuple[int, ...], target: int) -> Countdown:
    env = Countdown()
    env.reset(instance_seed=0, dynamics_seed=0)
    env._numbers, env._target = numbers, target
    return env


@pytest.mark.parametrize(
    ("action", "told", "reward"),
    [
        ("3 * 7 + 5", "3 * 7 + 5 = 26, not 24.", 0.0),
        ("7 / 2", "7 / 2 uses 2, which is not among the numbers.", 0.0),
        ("3 + 3", "3 + 3 uses 3, more often than it is there.", 0.0),
        ("5 / (7 - 5 - 3 + 1)", "5 / (7 - 5 - 3 + 1) uses 1, which is not among the numbers.", 0.0),
        ("(5 - 5) * 3", "(5 - 5) * 3 = 0, not 24.", 0.0),
        ("3 * (5 + 5) - 7", "3 * (5 + 5) - 7 = 23, not 24.", 0.0),
        ("5 / (5 - 5)", "5 / (5 - 5) uses 5, more often than it is there.", 0.0),
        ("7 / (5 - 5)", "7 / (5 - 5) divides by 0.", 0.0),
        ("(7 + 5 / 5) * 3", "(7 + 5 / 5) * 3 = 24.", 1.0),
    ],
)
def test_a_try(action: str, told: str, reward: float) -> None:
    env = started((3, 5, 5, 7), 24)
    step = env.step(action)
    assert (step.told, step.observation) == (told, "Numbers: 3, 5, 5, 7. Target: 24.")
    assert (step.reward, step.terminated, env.success) == (reward, bool(reward), bool(reward))
    if reward:
        with pytest.raises(EnvironmentFault, match="outside an episode"):
            env.step(action)


def test_not_all_numbers_need_be_used() -> None:
    assert started((4, 6, 9), 24).step("4 * 6").terminated


def test_the_oracle_and_the_player_without_brackets() -> None:
    env = started((3, 5, 5, 7), 24)
    (best,) = env.plan() or ("",)
    assert worth(best) == 24
    (near,) = env.closest()
    assert "(" not in near
    others = [other for word in env.actions() if (other := worth(word)) is not None]
    assert abs((worth(near) or 0) - 24) == min(abs(other - 24) for other in others)
    assert env.step(best).terminated
    assert env.plan() is None


def test_settings_that_have_no_instance_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"env\.least_target is 50, more than env\.greatest_target 40"):
        environment_factory({"name": "countdown", "least_target": 50, "greatest_target": 40})
    env = Countdown(CountdownSettings(numbers=2, largest=2, least_target=90))
    with pytest.raises(ConfigError, match="widen the range of targets"):
        env.reset(instance_seed=0, dynamics_seed=0)
