"""Properties every registered advantage estimator has (M1, M2, M3)."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ragen.algos.advantages import AdvantageEstimator, advantages
from ragen.algos.credit import Credit

NAMES = advantages.names()
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "grpo": [{}, {"normalize_std": False}],
    "dr_grpo": [{}],
    "none": [{}],
    "rloo": [{}],
    "reinforce": [{}],
    "reinforce_pp": [{}, {"gamma": 0.9}],
    "reinforce_pp_baseline": [{}],
    "turn_grpo": [{}, {"normalize_std": False, "turn_coef": 0.5}],
    "gigpo": [{}, {"gamma_turn": 0.9, "turn_coef": 0.5}, {"normalize_std": False}],
    "pass_at_k": [{"k": 1}, {"k": 2}, {"k": 3, "normalize_std": False}],
    "gae": [{}, {"gamma": 0.9, "lam": 0.8}, {"whiten": True}, {"gamma": 0.9, "bootstrap_truncated": True}],
    "bi_level_gae": [
        {},
        {"gamma": 0.9, "lam": 0.8, "gamma_turn": 0.7, "lam_turn": 0.6},
        {"gamma_turn": 0.9, "bootstrap_truncated": True, "whiten": True},
    ],
    "vapo": [{}, {"gamma": 0.9, "length_alpha": 0.5}, {"length_alpha": 0.3, "bootstrap_truncated": True, "whiten": True}],
}
BASELINE = torch.tensor(0.4, dtype=torch.float64)
GROUP_RULES = ("grpo", "dr_grpo", "rloo", "turn_grpo", "gigpo", "pass_at_k", "reinforce_pp_baseline")
CENTRED = {  # sum to 0 in a group, ignore a shift, and grow with the returns (or not, where divided by std)
    ("grpo", True),
    ("grpo", False),
    ("dr_grpo", False),
    ("rloo", False),
    ("pass_at_k", True),
    ("pass_at_k", False),
}
every_estimator = pytest.mark.parametrize(
    ("name", "options"), [(n, o) for n in NAMES for o in OPTIONS.get(n, [{}])], ids=str
)


@dataclass(frozen=True)
class Rows:
    rewards: Tensor
    mask: Tensor
    turn_ids: Tensor
    trajectory: Tensor
    group: Tensor
    values: Tensor
    truncated: Tensor
    anchors: Tensor
    baseline: Tensor = BASELINE

    def permuted(self, order: Tensor) -> "Rows":
        return Rows(**{name: array[order] if array.ndim else array for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, Tensor]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def credit(estimator: AdvantageEstimator, rows: Rows, options: dict[str, Any]) -> Credit:
    return estimator(rows.arrays(), options)


@st.composite
def batches(draw: st.DrawFn) -> Rows:
    """Groups of 1–4 trajectories of 1–3 turns; a trajectory has one or two segments; some rows have no sampled token."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    width = 7
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    rows: list[tuple[int, int, list[int]]] = []
    trajectory = 0
    for group, size in enumerate(sizes):
        for _ in range(size):
            turn = 0
            for _ in range(draw(st.integers(1, 2))):
                ids = []
                for column in range(width):
                    sampled = draw(st.booleans())
                    turn += int(sampled and column % 3 == 0)
                    ids.append(turn if sampled else -1)
                turn += 1
                rows.append((trajectory, group, ids))
            trajectory += 1
    turn_ids = torch.tensor([ids for *_, ids in rows], dtype=torch.int32)
    mask = turn_ids >= 0
    rewards = torch.randint(-2, 3, mask.shape, generator=generator).float() * mask
    cut = torch.rand(trajectory, generator=generator) < 0.5
    owner = torch.tensor([t for t, *_ in rows])
    values = torch.randn(mask.shape, generator=generator)
    group = torch.tensor([g for _, g, _ in rows]) * 5
    keys = torch.randint(-1, 2, (trajectory, int(turn_ids.max().clamp(min=0)) + 1), generator=generator)
    anchors = torch.where(mask, keys[owner].gather(1, turn_ids.clamp(min=0).long()), -1)
    return Rows(rewards, mask, turn_ids, owner * 3 + 1, group, values, cut[owner], anchors)


def assert_same(got: Credit, expected: Credit) -> None:
    torch.testing.assert_close(got.advantages, expected.advantages, rtol=1e-5, atol=1e-5)
    assert (got.value_targets is None) == (expected.value_targets is None)
    if got.value_targets is not None and expected.value_targets is not None:
        torch.testing.assert_close(got.value_targets, expected.value_targets, rtol=1e-5, atol=1e-5)


def test_the_suite_knows_the_registered_estimators() -> None:
    assert set(OPTIONS) == {name for name in NAMES if advantages.get(name).compute.__module__.startswith("ragen.")}
    for name in NAMES:
        assert set(advantages.get(name).needs) <= {field.name for field in fields(Rows)}
        assert {key for options in OPTIONS.get(name, []) for key in options} <= set(advantages.get(name).settings)


@every_estimator
@settings(max_examples=25)
@given(rows=batches())
def test_credit_is_exactly_zero_off_the_mask_and_finite_on_it(name: str, options: dict[str, Any], rows: Rows) -> None:
    got = credit(advantages.get(name), rows, options)
    for field in (got.advantages, got.value_targets):
        if field is not None:
            assert field.dtype == torch.float32
            assert torch.equal(field[~rows.mask], torch.zeros(int((~rows.mask).sum())))
            assert torch.isfinite(field).all()


@every_estimator
@settings(max_examples=25)
@given(rows=batches())
def test_b10_b11_what_stands_off_the_mask_changes_nothing(name: str, options: dict[str, Any], rows: Rows) -> None:
    plain = credit(advantages.get(name), rows, options)
    for filler in (math.nan, 1e6):
        dirty = replace(
            rows,
            rewards=torch.where(rows.mask, rows.rewards, filler),
            values=torch.where(rows.mask, rows.values, filler),
            turn_ids=torch.where(rows.mask, rows.turn_ids, 99),
            anchors=torch.where(rows.mask, rows.anchors, 1),
        )
        got = credit(advantages.get(name), dirty, options)
        assert torch.equal(got.advantages, plain.advantages)
        assert plain.value_targets is None or torch.equal(got.value_targets, plain.value_targets)


@every_estimator
@settings(max_examples=25)
@given(rows=batches(), data=st.data())
def test_b2_credit_follows_its_rows_when_they_are_reordered(
    name: str, options: dict[str, Any], rows: Rows, data: Any
) -> None:
    order = torch.tensor(data.draw(st.permutations(range(len(rows.mask)))))
    plain, mixed = (credit(advantages.get(name), batch, options) for batch in (rows, rows.permuted(order)))
    targets = None if plain.value_targets is None else plain.value_targets[order]
    assert_same(mixed, Credit(plain.advantages[order], targets))


@every_estimator
@settings(max_examples=25)
@given(rows=batches(), left=st.integers(0, 3), right=st.integers(0, 3))
def test_credit_does_not_depend_on_padding(name: str, options: dict[str, Any], rows: Rows, left: int, right: int) -> None:
    def pad(tensor: Tensor, value: float) -> Tensor:
        return torch.nn.functional.pad(tensor, (left, right), value=value)

    padded = replace(
        rows,
        rewards=pad(rows.rewards, 0),
        mask=pad(rows.mask, False),
        turn_ids=pad(rows.turn_ids, -1),
        values=pad(rows.values, 7.0),
        anchors=pad(rows.anchors, 0),
    )
    plain, got = (credit(advantages.get(name), batch, options) for batch in (rows, padded))
    inner = slice(left, left + rows.mask.shape[1])
    targets = None if got.value_targets is None else got.value_targets[:, inner]
    assert_same(Credit(got.advantages[:, inner], targets), plain)


@every_estimator
@settings(max_examples=25)
@given(rows=batches())
def test_a_split_of_trajectories_into_more_segments_changes_nothing(name: str, options: dict[str, Any], rows: Rows) -> None:
    # every row becomes one row a turn (as a context policy would cut it), shown in reverse order of the rows
    pieces = [(row, turn) for row in range(len(rows.mask)) for turn in rows.turn_ids[row].unique().tolist() if turn >= 0]
    pieces = pieces or [(0, 0)]
    pieces.reverse()
    source = torch.tensor([row for row, _ in pieces])
    turns = torch.tensor([turn for _, turn in pieces])[:, None]
    mask = rows.mask[source] & (rows.turn_ids[source] == turns)
    split = replace(rows.permuted(source), mask=mask, turn_ids=torch.where(mask, rows.turn_ids[source], -1))
    plain, got = (credit(advantages.get(name), batch, options) for batch in (rows, split))
    for whole, parts in ((plain.advantages, got.advantages), (plain.value_targets, got.value_targets)):
        if whole is not None and parts is not None:
            together = torch.zeros_like(whole).index_add_(0, source, parts)
            torch.testing.assert_close(together, whole, rtol=1e-5, atol=1e-5)


@every_estimator
def test_credit_passes_no_gradient_to_values(name: str, options: dict[str, Any]) -> None:
    mask = torch.ones(2, 2, dtype=torch.bool)
    index = torch.arange(2)
    values = torch.randn(2, 2, requires_grad=True)
    none = torch.zeros(2, 2, dtype=torch.int64)
    rows = Rows(torch.eye(2), mask, none, index, none[0], values, mask[:, 0], none - 1)
    got = credit(advantages.get(name), rows, options)
    assert not got.advantages.requires_grad
    assert got.value_targets is None or not got.value_targets.requires_grad


@pytest.mark.parametrize(("name", "normalized"), sorted(CENTRED), ids=str)
@settings(max_examples=40)
@given(rows=batches(), shift=st.integers(-20, 20), scale=st.sampled_from([0.125, 4.0]))
def test_m3_group_relative_credit(name: str, normalized: bool, rows: Rows, shift: int, scale: float) -> None:
    """It sums to 0 within a group, ignores a constant shift of the returns, and scales with them (not with std)."""
    estimator = advantages.get(name)
    options = {"normalize_std": normalized, "eps": 0.0, "k": 2}
    plain = credit(estimator, rows, options).advantages
    first = first_tokens(rows)
    for group in rows.group.unique():
        members = [plain[row, column] for row, column in first if rows.group[row] == group]
        assert abs(float(sum(members))) < 1e-4
    shifted = rows.rewards.clone()
    for row, column in first:
        shifted[row, column] += shift
    moved = credit(estimator, replace(rows, rewards=shifted), options).advantages
    torch.testing.assert_close(moved, plain, rtol=1e-4, atol=1e-5)
    grown = credit(estimator, replace(rows, rewards=rows.rewards * scale), options).advantages
    torch.testing.assert_close(grown, plain * (1.0 if normalized else scale), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", GROUP_RULES)
@settings(max_examples=25)
@given(rows=batches(), reward=st.sampled_from([0.1, 0.35, -0.7, 1e8]))
def test_b3_flat_groups_get_exactly_zero(name: str, rows: Rows, reward: float) -> None:
    """All groups but the first are made flat: every turn pays the same at its first token, every trajectory in one turn."""
    flat = rows.group != 0
    one_turn = torch.where(rows.mask, 0, -1)
    rewards = torch.where(flat[:, None], 0.0, rows.rewards)
    for row, column in first_tokens(rows):
        if flat[row]:
            rewards[row, column] = reward
    changed = replace(rows, rewards=rewards, turn_ids=torch.where(flat[:, None], one_turn, rows.turn_ids))
    kept = changed.permuted(one_row_each(changed))
    got = credit(advantages.get(name), kept, {"k": 2}).advantages
    assert torch.equal(got[kept.group != 0], torch.zeros_like(got[kept.group != 0]))


def one_row_each(rows: Rows) -> Tensor:
    """Rows of which each is its trajectory's row with its first sampled token, or its first row."""
    best = {int(t): int((rows.trajectory == t).nonzero()[0]) for t in rows.trajectory.unique()}
    for row, _ in first_tokens(rows):
        best[int(rows.trajectory[row])] = row
    return torch.tensor(list(best.values()))


def first_tokens(rows: Rows) -> list[tuple[int, int]]:
    """Place of the first sampled token of each trajectory."""
    found: dict[int, tuple[int, int]] = {}
    for row, column in rows.mask.nonzero().tolist():
        found.setdefault(int(rows.trajectory[row]), (row, column))
    return list(found.values())


@every_estimator
def test_no_array_is_written_to(name: str, options: dict[str, Any]) -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    given = {field.name: torch.zeros(2, dtype=torch.int64) for field in fields(Rows)}
    given |= {"rewards": torch.eye(2, 3, dtype=torch.float64), "values": torch.ones(2, 3, dtype=torch.float64), "mask": mask}
    given |= {"turn_ids": torch.tensor([[0, 0, 1], [0, 1, 1]]), "trajectory": torch.arange(2), "truncated": mask[:, 0]}
    given |= {"anchors": torch.zeros(2, 3, dtype=torch.int64), "baseline": torch.tensor(0.5, dtype=torch.float64)}
    before = {key: value.clone() for key, value in given.items()}
    advantages.get(name)(given, options)
    assert all(given[key].equal(before[key]) for key in given)
