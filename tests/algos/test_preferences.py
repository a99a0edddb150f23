"""Which trajectories and turns are better than which, and the losses that learn from it, with numbers worked out by hand."""

import math
import tracemalloc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.algos.losses import LossTerms, dpo, kto, losses, sft, step_dpo
from ragen.algos.preferences import preference_labels, preference_pairs, turn_contents, turn_numbers
from ragen.algos.trajectories import Turns, trajectory_returns

NAN = math.nan
# trajectory 0 has two rows, trajectory 1 one: turns 0, 1 | 0, 2 (turn 1 of it sampled nothing)
MASK = torch.tensor([[False, True, True, False], [False, True, False, False], [False, True, False, True]])
TURN_IDS = torch.tensor([[-1, 0, 0, -1], [-1, 1, -1, -1], [-1, 0, -1, 2]], dtype=torch.int32)
OWNER = torch.tensor([0, 0, 1])
REWARDS = torch.tensor([[NAN, 0.0, 1.0, NAN], [NAN, 0.5, NAN, NAN], [NAN, -1.0, NAN, 4.0]])
TURNS = torch.tensor([[-1, 0, 0, -1], [-1, 1, -1, -1], [-1, 2, -1, 3]])


def test_returns_turn_numbers_and_returns_to_go_by_hand() -> None:
    assert trajectory_returns(REWARDS, MASK, OWNER, 2).tolist() == [1.5, 3.0]
    assert torch.equal(turn_numbers(MASK, TURN_IDS, OWNER), TURNS)
    turns = Turns.of(MASK, TURN_IDS, OWNER)
    for gamma, wanted in ((1.0, [1.5, 0.5, 3.0, 4.0]), (0.5, [1.25, 0.5, 1.0, 4.0]), (0.0, [1.0, 0.5, -1.0, 4.0])):
        assert turns.returns_to_go(REWARDS, gamma)[turns.present].tolist() == wanted


def test_equal_returns_in_another_order_of_rewards_are_equal() -> None:
    rewards = torch.tensor([[-0.1, 1.0, -0.1], [1.0, -0.1, -0.1]])
    first, second = trajectory_returns(rewards, torch.ones(2, 3, dtype=torch.bool), torch.arange(2), 2).tolist()
    assert first == second


def test_returns_that_differ_by_rounding_alone_make_neither_pairs_nor_labels() -> None:
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ in the last bit; in float32 sums of tenths by 1e-8 (a real one: 0.1)."""
    noisy = torch.tensor([0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, 0.6, 0.6 + 1e-16], dtype=torch.float64)
    assert len(noisy.unique()) > 1
    group = torch.zeros(4, dtype=torch.int64)
    assert preference_pairs(noisy, group, pairing="all").tolist() == []
    assert preference_labels(noisy, group, None).tolist() == [0, 0, 0, 0]
    noisy[3] += 0.1
    assert preference_pairs(noisy, group, pairing="best-worst")[:, 0].tolist() == [3]
    assert preference_labels(noisy, group, None).tolist() == [-1, -1, -1, 1]


def test_turns_with_the_same_history_and_the_same_reply_are_told_by_their_tokens() -> None:
    #                     prompt  reply  obs  reply
    rows = [[1, 2, 5, 6, 3, 7], [1, 2, 5, 6, 3, 8], [1, 2, 5, 9, 3, 7], [1, 2, 5, 6, 3, 7], [1, 2, 5, 6, 4, 7]]
    sampled = torch.tensor([False, False, True, True, False, True]).expand(5, 6)
    turns = torch.tensor([[-1, -1, 2 * r, 2 * r, -1, 2 * r + 1] for r in range(5)])
    histories, replies = turn_contents(torch.tensor(rows), sampled, turns, torch.tensor([0, 0, 0, 1, 0]))
    first, second = histories[::2].tolist(), histories[1::2].tolist()
    assert first[0] == first[1] == first[2] == first[4] != first[3]  # another group, another history
    assert second[0] == second[1] != second[2]  # the third member answered otherwise before
    assert second[4] not in second[:4]  # the last one was told something else
    assert first[0] not in second
    assert replies[::2].tolist().count(int(replies[0])) == 4
    assert replies[1] == replies[5] == replies[7] != replies[3]


@pytest.mark.parametrize(
    ("pairing", "margin", "pairs"),
    [
        ("best-worst", 0.0, [[1, 2], [3, 4]]),
        ("best-worst", 1.0, [[1, 2]]),
        ("all", 0.0, [[0, 2], [1, 0], [1, 2], [3, 4]]),
        ("all", 1.0, [[1, 2]]),
    ],
)
def test_pairs_by_hand(pairing: str, margin: float, pairs: list[list[int]]) -> None:
    values, group = torch.tensor([1.0, 2.0, 0.0, 6.0, 5.0, 9.0, 4.0, 4.0]), torch.tensor([0, 0, 0, 7, 7, 3, 5, 5])
    assert preference_pairs(values, group, pairing=pairing, margin=margin).tolist() == pairs  # type: ignore[arg-type]
    flat = preference_pairs(torch.ones(3), torch.zeros(3), pairing=pairing)  # type: ignore[arg-type]
    assert flat.shape == (0, 2)


def test_equal_replies_make_no_pair() -> None:
    values, alike = torch.tensor([1.0, 0.0, 0.5]), torch.zeros(3)
    contents = torch.tensor([4, 4, 5])
    assert preference_pairs(values, alike, pairing="all", contents=contents).tolist() == [[0, 2], [2, 1]]
    assert preference_pairs(values, alike, pairing="best-worst", contents=contents).tolist() == []


def apart(margin: float) -> bool:
    """Whether a margin is a whole number or further from each than rounding, which the pairs make no difference of."""
    return margin == round(margin) or abs(margin - round(margin)) > 1e-6


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2)), max_size=12), st.floats(0, 2).filter(apart))
def test_all_pairs_are_those_of_the_double_loop_and_the_best_worst_ones_are_among_them(
    units: list[tuple[int, int]], margin: float
) -> None:
    group, values = torch.tensor([g for g, _ in units]), torch.tensor([float(v) for _, v in units])
    expected = [
        [i, j] for i, (g, v) in enumerate(units) for j, (other, w) in enumerate(units) if g == other and v - w > margin
    ]
    everyone = preference_pairs(values, group, pairing="all", margin=margin).tolist()
    assert sorted(everyone) == sorted(expected)
    best = preference_pairs(values, group, pairing="best-worst", margin=margin).tolist()
    assert all(pair in expected for pair in best)
    assert len(best) == len({units[i][0] for i, _ in expected})


def test_labels_by_hand() -> None:
    returns, group = torch.tensor([1.0, 0.0, 0.5, 0.5, 3.0, 3.0]), torch.tensor([0, 0, 0, 0, 1, 1])
    assert preference_labels(returns, group, None).tolist() == [1, -1, 0, 0, 0, 0]
    assert preference_labels(returns, group, 0.5).tolist() == [1, -1, -1, -1, 1, 1]


NEW = torch.tensor([[-1.0, -2.0, NAN], [-3.0, -1.0, -1.0]])
REFERENCE = torch.tensor([[-1.5, -1.0, NAN], [-1.0, -2.0, NAN]])
WEIGHTS = torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.5, 0.0]])
UNITS = torch.tensor([[3, 3, -1], [1, 1, -1]])  # h of unit 3: 0.5 − 1 = −0.5; of unit 1: −2 + 1 = −1


def gradient_of(terms: LossTerms, leaf: Tensor) -> list[list[float]]:
    terms.loss.backward()
    assert leaf.grad is not None
    return leaf.grad.tolist()


@pytest.mark.parametrize("rule", [dpo, step_dpo])
def test_dpo_by_hand(rule: object) -> None:
    leaf = NEW.clone().requires_grad_()
    terms = rule(leaf, REFERENCE, WEIGHTS, UNITS, torch.tensor([[3, 1]]), beta=0.4)  # type: ignore[operator]
    margin = 0.4 * 0.5
    assert terms.loss.item() == pytest.approx(math.log(1 + math.exp(-margin)))
    slope = -0.4 / (1 + math.exp(margin))
    assert gradient_of(terms, leaf) == [pytest.approx([slope, slope, 0.0]), pytest.approx([-slope, -slope, 0.0])]
    means = {name: float(mean.total / mean.mass) for name, mean in terms.means.items()}
    assert means == pytest.approx({"preference_accuracy": 1.0, "preference_margin": margin})


def test_dpo_is_the_mean_over_pairs_and_zero_without_one() -> None:
    both = dpo(NEW, REFERENCE, WEIGHTS, UNITS, torch.tensor([[3, 1], [1, 3]]), beta=1.0)
    assert both.loss.item() == pytest.approx((math.log1p(math.exp(-0.5)) + math.log1p(math.exp(0.5))) / 2)
    leaf = NEW.clone().requires_grad_()
    nothing = dpo(leaf, REFERENCE, WEIGHTS, UNITS, torch.zeros(0, 2, dtype=torch.int64), beta=1.0)
    assert nothing.loss.item() == 0.0
    assert gradient_of(nothing, leaf) == [[0.0] * 3] * 2


def test_dpo_at_the_reference_moves_every_token_of_a_pair_by_half_beta() -> None:
    leaf = REFERENCE.clone().requires_grad_()
    terms = dpo(leaf, REFERENCE, WEIGHTS, UNITS, torch.tensor([[3, 1]]), beta=0.2)
    assert terms.loss.item() == pytest.approx(math.log(2))
    assert gradient_of(terms, leaf) == [pytest.approx([-0.1, -0.1, 0.0]), pytest.approx([0.1, 0.1, 0.0])]


@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_kto_by_hand(shift: float) -> None:
    """h = (−1, −0.5) has a negative mean, so z = 0; shifted by 4 (two tokens by 2) it is (3, 3.5) and z = 3.25."""
    leaf = (NEW + shift / 2).requires_grad_()
    labels = torch.tensor([0, 1, 0, -1, 1])  # trajectory 4 has no token here: it does not count
    terms = kto(leaf, REFERENCE, WEIGHTS, UNITS, labels, beta=0.5, good_weight=2.0, bad_weight=3.0)
    anchor = max(0.0, shift - 0.75)
    good, bad = 0.5 * (shift - 1.0 - anchor), -0.5 * (shift - 0.5 - anchor)
    sigmoid = lambda x: 1 / (1 + math.exp(-x))
    assert terms.loss.item() == pytest.approx((2 * (1 - sigmoid(good)) + 3 * (1 - sigmoid(bad))) / 2)
    slopes = (-2 * 0.5 * sigmoid(good) * sigmoid(-good) / 2, 3 * 0.5 * sigmoid(bad) * sigmoid(-bad) / 2)
    assert gradient_of(terms, leaf) == [pytest.approx([slopes[1]] * 2 + [0.0]), pytest.approx([slopes[0]] * 2 + [0.0])]
    assert float(terms.means["preference_accuracy"].total) == (good > 0) + (bad > 0)
    assert float(terms.means["preference_margin"].total) == pytest.approx(good + bad)


def test_sft_is_the_mean_negative_log_probability_of_what_is_chosen() -> None:
    leaf = NEW.clone().requires_grad_()
    chosen = torch.tensor([[True, True, True], [False, False, False]])
    terms = sft(leaf, WEIGHTS, chosen)
    assert terms.loss.item() == pytest.approx(1.5)
    assert gradient_of(terms, leaf) == [[-0.5, -0.5, 0.0], [0.0, 0.0, 0.0]]


@settings(max_examples=30)
@given(
    name=st.sampled_from(["dpo", "step_dpo", "kto", "sft"]), seed=st.integers(0, 2**32 - 1), order=st.permutations(range(5))
)
def test_row_order_padding_and_what_stands_off_the_mask_change_nothing(name: str, seed: int, order: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(5, 6, generator=generator) < 0.6
    units = torch.tensor([0, 1, 1, 2, 3])[:, None].expand(5, 6)
    here = set(units[mask].tolist())
    pairs = torch.tensor([[i, j] for i, j in [(0, 1), (3, 2), (1, 2)] if {i, j} <= here], dtype=torch.int64).reshape(-1, 2)
    new, reference = torch.randn(2, 5, 6, generator=generator)
    shared = {"trajectory_pairs": pairs, "turn_pairs": pairs, "labels": torch.tensor([1, -1, 0, 1])}

    def run(order: list[int], filler: float, padding: int) -> tuple[float, Tensor]:
        def lay(table: Tensor, value: float) -> Tensor:
            return torch.nn.functional.pad(torch.where(mask, table, value)[order], (0, padding), value=value)

        leaf = lay(new, filler).requires_grad_()
        where = lay(units, -5)
        arrays = {
            "logprobs": leaf,
            "reference_logprobs": lay(reference, filler),
            "weights": lay(torch.ones(5, 6) / 30, 0.0),
            "trajectories": where,
            "turns": where,
            "chosen": where >= 1,
        }
        terms = losses.get(name)(arrays | shared, {"beta": 0.3})
        terms.loss.backward()
        assert leaf.grad is not None
        return terms.loss.item(), leaf.grad[:, :6]

    loss, gradient = run(list(range(5)), 0.0, 0)
    mixed, moved = run(order, NAN, 2)
    assert mixed == pytest.approx(loss, rel=1e-5, abs=1e-6)  # its terms may nearly cancel
    torch.testing.assert_close(moved, gradient[order], rtol=1e-5, atol=1e-7)
    assert torch.equal(gradient[~mask], torch.zeros(int((~mask).sum())))


def test_which_rules_need_advantages_and_which_a_reference() -> None:
    without = {name for name in losses if "advantages" not in losses.get(name).needs}
    assert without >= {"dpo", "step_dpo", "kto", "sft"}
    assert {name for name in losses if "reference_logprobs" in losses.get(name).needs} >= {"dpo", "step_dpo", "kto"}


@pytest.mark.parametrize("pairing", ["best-worst", "all"])
def test_pairs_take_the_memory_of_those_found_not_of_those_looked_at(pairing: str) -> None:
    """1,000 units have a million pairs of which 250,000 differ in value; of equal contents no pair is left."""
    values = torch.arange(1000, dtype=torch.float64) // 500
    one = torch.zeros(1000, dtype=torch.int64)
    tracemalloc.start()
    try:
        found = preference_pairs(values, one, pairing=pairing)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        none = preference_pairs(values, one, pairing=pairing, contents=one)  # type: ignore[arg-type]
        alike = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == (250_000 if pairing == "all" else 1)
    assert len(none) == 0
    assert peak < 3 * found.numel() * found.element_size() + 2**18
    assert alike < found.numel() * found.element_size() + 2**19
