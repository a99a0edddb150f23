"""Rules that give turns credit of their own, with numbers worked out by hand and plain second implementations."""

import math
from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.algos.advantages import bi_level_gae, gae, gigpo, turn_grpo, vapo


def one_token_a_turn(table: list[list[float]]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Rewards (NaN: no such turn), mask, turn ids, trajectory and one group for all."""
    rewards = torch.tensor(table)
    mask = ~rewards.isnan()
    turns = torch.where(mask, torch.arange(rewards.shape[1]), -1)
    return rewards, mask, turns, torch.arange(len(table)), torch.zeros(len(table), dtype=torch.int64)


def test_turn_grpo_adds_the_turns_own_advantage_to_the_outcomes() -> None:
    # R = 1, 3, 2; turn 0 pays 1, 0, 2 (mean 1); turn 1, which two of them reached, 0, 3 (mean 1.5)
    rows = one_token_a_turn([[1, 0], [0, 3], [2, math.nan]])
    got = turn_grpo(*rows, turn_coef=0.5, normalize_std=False).advantages
    torch.testing.assert_close(got, torch.tensor([[-1.0, -1.75], [0.5, 1.75], [0.5, 0.0]]))


def test_turn_grpo_standardises_both_parts() -> None:
    # R = 2, 4: ∓1/√2; turn 0 pays 1, 2: ∓1/√2; turn 1 pays 1, 2 too
    got = turn_grpo(*one_token_a_turn([[1, 1], [2, 2]]), eps=0.0).advantages
    torch.testing.assert_close(got, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]) * math.sqrt(2))


def test_turn_grpo_sees_a_turn_that_paid_nothing() -> None:
    got = turn_grpo(*one_token_a_turn([[0, 2], [2, 0]]), normalize_std=False).advantages
    assert got.tolist() == [[-1.0, 1.0], [1.0, -1.0]]


def test_gigpo_compares_turns_that_began_in_the_same_state() -> None:
    # γ = 0.5: G = 1, 2 and 0, 0; in state 0 stand G = 1 and 0; states 1 and 2 were met once
    rows = one_token_a_turn([[0, 2], [0, 0]])
    got = gigpo(*rows, torch.tensor([[0, 1], [0, 2]]), gamma_turn=0.5, normalize_std=False).advantages
    assert got.tolist() == [[1.5, 1.0], [-1.5, -1.0]]


def test_gigpo_pools_a_state_met_twice_in_a_trajectory_and_leaves_unknown_ones_out() -> None:
    # state 0 with G = 1, 2, 0 (mean 1); the last turn's state is not known
    rows = one_token_a_turn([[0, 2], [0, 0]])
    got = gigpo(*rows, torch.tensor([[0, 0], [0, -1]]), gamma_turn=0.5, normalize_std=False).advantages
    assert got.tolist() == [[1.0, 2.0], [-2.0, -1.0]]


def test_gigpo_never_compares_states_of_different_groups() -> None:
    rewards, mask, turns, trajectory, _ = one_token_a_turn([[1.0], [5.0]])
    got = gigpo(rewards, mask, turns, trajectory, torch.tensor([0, 1]), torch.zeros(2, 1, dtype=torch.int64)).advantages
    assert got.tolist() == [[0.0], [0.0]]


def test_turns_that_differ_by_rounding_alone_have_no_advantage() -> None:
    """0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 from the same state on; a turn paid 0.1 + 0.2 or 0.3."""
    table = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.6, 0.0, 0.0]], dtype=torch.float64)
    mask, turns = torch.ones(3, 3, dtype=torch.bool), torch.arange(3).expand(3, 3)
    rows = table, mask, turns, torch.arange(3), torch.zeros(3, dtype=torch.int64)
    anchors = torch.tensor([[0, -1, -1]]).expand(3, 3)
    for std in (True, False):
        assert gigpo(*rows, anchors, normalize_std=std, eps=0.0).advantages.abs().max() == 0
    paid = torch.tensor([[0.1, 0.2], [0.2, 0.1], [0.3, 0.0]], dtype=torch.float64)
    rows = paid, mask[:, :2], torch.zeros(3, 2, dtype=torch.int64), torch.arange(3), torch.zeros(3, dtype=torch.int64)
    for std in (True, False):
        assert turn_grpo(*rows, normalize_std=std, eps=0.0).advantages.abs().max() == 0


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), members=st.integers(1, 5), gamma=st.sampled_from([0.0, 0.5, 1.0]))
def test_gigpo_equals_brute_force_over_states(seed: int, members: int, gamma: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 4, (members,), generator=generator).tolist()
    rewards = torch.randint(-2, 3, (members, 3), generator=generator).float()
    states = torch.randint(-1, 2, (members, 3), generator=generator)
    table = [[rewards[i, k].item() if k < lengths[i] else math.nan for k in range(3)] for i in range(members)]
    got = gigpo(*one_token_a_turn(table), states, gamma_turn=gamma, turn_coef=2.0, eps=0.1).advantages
    pools = defaultdict(list)
    to_go = {}
    for i in range(members):
        for k in range(lengths[i]):
            to_go[i, k] = sum(gamma ** (end - k) * table[i][end] for end in range(k, lengths[i]))
            pools[states[i, k].item()].append(to_go[i, k])
    returns = [sum(table[i][: lengths[i]]) for i in range(members)]
    for (i, k), value in to_go.items():
        pool = pools[states[i, k].item()] if states[i, k] >= 0 else [value]
        assert got[i, k].item() == pytest.approx(scaled(returns[i], returns) + 2 * scaled(value, pool), abs=1e-4)


def scaled(value: float, values: list[float]) -> float:
    off = value - sum(values) / len(values)
    if max(values) == min(values):
        return 0.0
    return off / (torch.tensor(values, dtype=torch.float64).std().item() + 0.1)


def bi_level(rewards, turns, values, truncated=False, **options):
    turn_ids = torch.tensor([turns])
    zero = torch.zeros(1, dtype=torch.int64)
    tables = torch.tensor([rewards]), turn_ids >= 0, turn_ids, zero, torch.tensor([values]), torch.tensor([truncated])
    got = bi_level_gae(*tables, **options)
    return got.advantages[0].tolist(), got.value_targets[0].tolist()


def test_bi_level_gae_by_hand_with_a_turn_that_pays_nothing() -> None:
    # over turns: A_1 = 4 − 3 = 1, A_0 = 0 + ½·3 − 2 + ¼·1 = −¼; inside turn 0: A = ½·2 − 1 + ½·(−¼) = −⅛
    advantages, targets = bi_level(
        [0.0, 0.0, math.nan, 4.0], [0, 0, -1, 1], [1.0, 2.0, math.nan, 3.0], gamma=0.5, gamma_turn=0.5, lam_turn=0.5
    )
    assert advantages == pytest.approx([-0.125, -0.25, 0, 1])
    assert targets == pytest.approx([0.875, 1.75, 0, 4])


def test_bi_level_gae_keeps_the_turns_discount_apart_from_the_tokens() -> None:
    advantages, _ = bi_level([0.0, 0.0, 0.0, 1.0], [0, 0, 1, 1], [0.0] * 4, gamma=0.9, gamma_turn=0.5)
    assert advantages == pytest.approx([0.45, 0.5, 0.9, 1.0])


def test_bi_level_gae_counts_a_reward_inside_a_turn_there_only() -> None:
    # −1 on the first token of turn 1 (a KL term) reaches neither the turn's end nor turn 0
    advantages, _ = bi_level([0.0, -1.0, 2.0], [0, 1, 1], [0.0] * 3)
    assert advantages == pytest.approx([2.0, 1.0, 2.0])


def test_b14_bi_level_gae_bootstraps_over_turns_iff_truncated_and_asked_for() -> None:
    for truncated, asked, last in ((False, True, -2.0), (True, False, -2.0), (True, True, 0.0)):
        options = {"truncated": truncated, "bootstrap_truncated": asked, "lam_turn": 0.0}
        assert bi_level([0.0, 0.0], [0, 1], [1.0, 2.0], **options)[0] == [1.0, last], (truncated, asked)


def turn_rows(data: st.DataObject, ends_only: bool) -> tuple[Tensor, ...]:
    """One to three trajectories of one row, with turns of one to three tokens."""
    seed = data.draw(st.integers(0, 2**32 - 1))
    generator = torch.Generator().manual_seed(seed)
    rows = [[k for k, n in enumerate(lengths) for _ in range(n)] for lengths in data.draw(LENGTHS)]
    width = max(map(len, rows))
    turns = torch.tensor([row + [-1] * (width - len(row)) for row in rows])
    rewards, values = torch.randn(2, *turns.shape, generator=generator)
    if ends_only:
        following = torch.cat([turns[:, 1:], torch.full((len(turns), 1), -1)], dim=1)
        rewards = torch.where(turns != following, rewards, 0)
    return rewards, turns >= 0, turns, torch.arange(len(rows)), values, torch.zeros(len(rows), dtype=torch.bool)


LENGTHS = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=3), min_size=1, max_size=3)
DECAY = st.sampled_from([0.0, 0.5, 0.9, 1.0])


@settings(max_examples=40)
@given(data=st.data(), gamma=DECAY, lam=DECAY, gamma_turn=DECAY, lam_turn=DECAY)
def test_bi_level_gae_equals_its_definition(data, gamma, lam, gamma_turn, lam_turn) -> None:
    rewards, mask, turns, trajectory, values, cut = turn_rows(data, ends_only=False)
    decays = {"gamma": gamma, "lam": lam, "gamma_turn": gamma_turn, "lam_turn": lam_turn}
    got = bi_level_gae(rewards, mask, turns, trajectory, values, cut, **decays)
    for row in range(len(turns)):
        ids = turns[row][mask[row]].tolist()
        r, v = rewards[row].tolist(), values[row].tolist()
        expected = [0.0] * len(ids)
        over, beyond = 0.0, 0.0
        for k in range(max(ids), -1, -1):
            places = [j for j, turn in enumerate(ids) if turn == k]
            end = places[-1]
            over = r[end] + gamma_turn * beyond - v[end] + gamma_turn * lam_turn * over
            beyond = v[end]
            expected[end] = over
            for j in reversed(places[:-1]):
                expected[j] = r[j] + gamma * v[j + 1] - v[j] + gamma * lam * expected[j + 1]
        assert got.advantages[row][mask[row]].tolist() == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=30)
@given(data=st.data())
def test_bi_level_gae_without_decay_is_gae(data) -> None:
    rows = turn_rows(data, ends_only=True)
    one, two = bi_level_gae(*rows), gae(*rows)
    torch.testing.assert_close(one.advantages, two.advantages, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one.value_targets, two.value_targets, rtol=1e-4, atol=1e-5)


@settings(max_examples=30)
@given(data=st.data(), gamma=DECAY, lam=DECAY)
def test_bi_level_gae_of_single_turns_is_gae(data, gamma, lam) -> None:
    rewards, mask, _, *rest = turn_rows(data, ends_only=False)
    rows = (rewards, mask, torch.where(mask, 0, -1), *rest)
    one, two = (rule(*rows, gamma=gamma, lam=lam) for rule in (bi_level_gae, gae))
    torch.testing.assert_close(one.advantages, two.advantages, rtol=1e-4, atol=1e-5)


def test_vapo_decays_by_the_length_of_each_trajectory() -> None:
    # α = ½: 4 tokens λ = ½, 1 token λ = 0 (½ − 2 < 0 is held at 0); V = 0, so A_j = λ^{steps to the reward}
    mask = torch.tensor([[True] * 4, [True] + [False] * 3])
    rewards = torch.tensor([[0.0, 0, 0, 8], [3.0, 0, 0, 0]])
    turns, trajectory, cut = torch.where(mask, 0, -1), torch.arange(2), torch.zeros(2, dtype=torch.bool)
    got = vapo(rewards, mask, turns, trajectory, torch.zeros(2, 4), cut, length_alpha=0.5)
    assert got.advantages.tolist() == [[1.0, 2.0, 4.0, 8.0], [3.0, 0, 0, 0]]
    assert got.value_targets is not None
    assert got.value_targets.tolist() == [[8.0] * 4, [3.0, 0, 0, 0]]


@settings(max_examples=30)
@given(data=st.data(), gamma=DECAY, alpha=st.sampled_from([0.05, 0.4, 2.0]), bootstrap=st.booleans())
def test_vapo_is_gae_with_its_own_lambda_and_undecayed_targets(data, gamma, alpha, bootstrap) -> None:
    rewards, mask, turns, trajectory, values, cut = turn_rows(data, ends_only=False)
    cut = ~cut
    got = vapo(rewards, mask, turns, trajectory, values, cut, gamma=gamma, length_alpha=alpha, bootstrap_truncated=bootstrap)
    for row in range(len(turns)):
        lam = max(0.0, 1 - 1 / (alpha * int(mask[row].sum())))
        one = [x[row : row + 1] for x in (rewards, mask, turns, trajectory, values, cut)]
        options = {"gamma": gamma, "bootstrap_truncated": bootstrap}
        torch.testing.assert_close(got.advantages[row : row + 1], gae(*one, lam=lam, **options).advantages)
        targets = gae(*one, lam=1.0, **options).value_targets
        torch.testing.assert_close(got.value_targets[row : row + 1], targets, rtol=1e-4, atol=1e-5)


def test_vapo_refuses_a_length_factor_that_has_no_meaning() -> None:
    mask = torch.ones(1, 1, dtype=torch.bool)
    zero = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="above 0"):
        vapo(torch.zeros(1, 1), mask, zero[None], zero, torch.zeros(1, 1), zero.bool(), length_alpha=0.0)
