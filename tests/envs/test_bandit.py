"""The bandit: payoffs, arms by seed, settings, and the exact policy gradient."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from ragen.envs import environment_factory, environments
from ragen.envs.bandit import TEST_PROFESSIONS, TRAIN_PROFESSIONS, Bandit, BanditSettings
from ragen.errors import ConfigError, EnvironmentFault

PULLS = 100_000


def pulls(arm: str, n: int = PULLS) -> np.ndarray:
    env = Bandit()
    rewards = np.empty(n)
    for seed in range(n):
        env.reset(instance_seed=3, dynamics_seed=seed)
        rewards[seed] = env.step(arm).reward
    return rewards


def test_the_low_risk_arm_always_pays_the_same() -> None:
    assert set(pulls("Phoenix", 1000)) == {0.15}


def test_the_high_risk_arm_has_mean_and_variance_of_a_quarter_coin() -> None:
    rewards = pulls("Dragon")
    assert set(rewards) == {0.0, 1.0}
    assert abs(rewards.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / PULLS)
    # the variance estimate of a coin p has standard error |1 − 2p| · sqrt(p(1 − p)/n)
    assert abs(rewards.var() - 0.1875) < 4 * 0.5 * np.sqrt(0.25 * 0.75 / PULLS)


def test_success_is_the_better_mean_not_the_luck_of_the_pull() -> None:
    env = Bandit()
    for seed in range(40):
        env.reset(instance_seed=seed, dynamics_seed=seed)
        assert not env.success
        step = env.step("Dragon")
        assert step.terminated
        assert not step.truncated
        assert env.success
        assert step.info["success"]
        env.reset(instance_seed=seed, dynamics_seed=seed)
        assert env.step("Phoenix").info["success"] is False


def test_the_best_arm_follows_the_means() -> None:
    env = Bandit(BanditSettings(low_reward=0.3))
    env.reset(instance_seed=0, dynamics_seed=0)
    assert env.plan() == ("Phoenix",)
    assert env.best_success() == 1.0
    env.step("Phoenix")
    assert env.success


def test_c12_a_group_shares_order_and_names_while_payoffs_differ_and_others_change_nothing() -> None:
    for instance in range(6):
        members = [environment_factory({"name": "bandit-professions"})() for _ in range(32)]
        starts = [env.reset(instance_seed=instance, dynamics_seed=member) for member, env in enumerate(members)]
        assert len({(start.text, env.actions()) for start, env in zip(starts, members, strict=True)}) == 1
        environment_factory({"name": "bandit"})().reset(instance_seed=9, dynamics_seed=9)
        risky = members[0].plan()
        assert risky is not None
        assert {env.step(risky[0]).reward for env in members} == {0.0, 1.0}


def test_the_order_of_the_arms_is_shuffled_evenly_and_apart_from_the_pair() -> None:
    env = environment_factory({"name": "bandit-professions"})()
    shown: Counter[tuple[str, ...]] = Counter()
    for seed in range(4800):
        env.reset(instance_seed=seed, dynamics_seed=0)
        shown[env.actions()] += 1
    assert set(shown) == {order for pair in TRAIN_PROFESSIONS for order in (pair, pair[::-1])}
    assert min(shown.values()) > 140  # 24 equally likely prompts: 200 each, standard deviation 14
    assert max(shown.values()) < 260


def test_train_and_test_professions_share_no_name() -> None:
    train, test = ({name for pair in pairs for name in pair} for pairs in (TRAIN_PROFESSIONS, TEST_PROFESSIONS))
    assert (len(train), len(test)) == (24, 16)
    assert not train & test


@pytest.mark.parametrize("name", [name for name in environments.names() if f"{name}-rev" in environments.names()])
def test_reversed_presets_swap_who_is_risky(name: str) -> None:
    env, other = (environment_factory({"name": n})() for n in (name, f"{name}-rev"))
    for seed in range(8):
        env.reset(instance_seed=seed, dynamics_seed=0)
        other.reset(instance_seed=seed, dynamics_seed=0)
        assert set(env.actions()) == set(other.actions())
        assert env.plan() != other.plan()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([["Phoenix", None]], r"env\.pairs\.0\.1' is null"),
        ([["Phoenix", "  "]], "two different words"),
        ([["Phoenix", "phoenix."]], "two different words"),
        ([["Phoenix", "Dragon || Up"]], "two different words"),
        ([], r"env\.pairs' is \[\]"),
    ],
)
def test_c13_arm_names_are_checked(pairs: list[list[str | None]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        environment_factory({"name": "bandit", "pairs": pairs})


def test_arms_of_equal_mean_and_impossible_chances_are_refused() -> None:
    with pytest.raises(ConfigError, match="neither is the better one"):
        environment_factory({"name": "bandit", "low_reward": 0.25})
    with pytest.raises(ConfigError, match=r"env\.high_probability' is 1\.5"):
        environment_factory({"name": "bandit", "high_probability": 1.5})


def test_a_pull_after_the_end_is_refused_and_an_unknown_arm_pulls_nothing() -> None:
    env = Bandit()
    with pytest.raises(EnvironmentFault, match="call reset"):
        env.step("Dragon")
    env.reset(instance_seed=0, dynamics_seed=0)
    step = env.step("Unicorn")
    assert (step.reward, step.terminated, step.info["action_is_valid"]) == (0.0, False, False)
    env.step("Dragon")
    with pytest.raises(EnvironmentFault, match="call reset"):
        env.step("Dragon")


def test_thoughts_are_short_varied_and_the_same_for_either_arm() -> None:
    env = Bandit()
    env.reset(instance_seed=0, dynamics_seed=0)

    def thoughts(actions: Sequence[str]) -> set[str]:
        return {env.thought(np.random.default_rng(seed), actions) for seed in range(300)}

    high, low = thoughts(["Dragon"]), thoughts(["Phoenix"])
    assert len(high) >= 10
    assert max(len(thought.split()) for thought in high) <= 20
    swap = {"Dragon": "Phoenix", "Phoenix": "Dragon"}
    swapped = {" ".join(swap.get(w.strip(",.?:"), w) + w[len(w.rstrip(",.?:")) :] if w.strip(",.?:") in swap else w
                        for w in thought.split()) for thought in high}  # fmt: skip
    assert swapped == low


def test_m10_the_sampled_policy_gradient_of_a_tabular_policy_meets_the_closed_form() -> None:
    """J(θ) = σ(θ)·0.25 + (1 − σ(θ))·0.15, so dJ/dθ = σ(θ)(1 − σ(θ))·0.1."""
    theta, n = 0.4, 40_000
    high = 1 / (1 + np.exp(-theta))
    env, rng = Bandit(), np.random.default_rng(0)
    samples = np.empty(n)
    for seed in range(n):
        env.reset(instance_seed=seed, dynamics_seed=seed + n)
        risky = bool(rng.random() < high)
        reward = env.step("Dragon" if risky else "Phoenix").reward
        samples[seed] = ((1 - high) if risky else -high) * reward
    assert abs(samples.mean() - high * (1 - high) * 0.1) < 4 * samples.std() / np.sqrt(n)


def test_the_verbose_wording_names_the_arms_of_this_instance() -> None:
    env = environment_factory({"name": "bandit-professions", "wording": "verbose"})()
    env.reset(instance_seed=5, dynamics_seed=0)
    assert all(name in env.instructions() for name in env.actions())
