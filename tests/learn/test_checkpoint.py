"""Checkpoints: bit-exact, complete or refused by name, and never code."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ragen.algos.credit import Credit
from ragen.errors import CheckpointError, ConfigError, ModelError
from ragen.learn.batch import Batch, collate
from ragen.learn.checkpoint import load_state, save_state, stored_extra
from ragen.learn.lora import Lora, adapters, merged_state
from ragen.learn.loss_settings import LossSettings
from ragen.learn.optimizer import Optimizer
from ragen.learn.policy import Policy
from ragen.learn.reference import Reference
from ragen.learn.update import update

LORA = Lora(rank=4, alpha=8, seed=1)


class Learner:
    """A policy with its optimiser, built the same way each time."""

    def __init__(
        self,
        make_model: Any,
        *,
        critic: Any = "head",
        lora: Lora | None = None,
        name: str = "llama",
        critic_name: str = "gpt2",
        seed: int = 0,
    ) -> None:
        extra = {"critic_model": make_model(critic_name, seed=7)} if critic == "separate" else {}
        self.policy = Policy(make_model(name, seed), dtype=torch.float32, pad_id=0, critic=critic, lora=lora, **extra)
        self.optimizer = Optimizer(self.policy, learning_rate=1e-3, critic_learning_rate=1e-2, warmup_steps=5)

    def train(self, batches: list[Batch], first: int = 0) -> None:
        for step, batch in enumerate(batches, start=first):
            noise = torch.from_numpy(np.random.default_rng(step).normal(size=batch.ids.shape)).float()
            credit = Credit(torch.where(batch.mask, noise, 0), torch.where(batch.mask, 1 - noise, 0))
            update(
                self.policy,
                self.optimizer,
                batch,
                credit,
                loss=LossSettings(),
                trajectories=3,
                microbatch_tokens=60,
                seed=step,
            )

    def everything(self) -> dict[str, torch.Tensor]:
        found = {name: p.detach().clone() for name, p in self.optimizer.parameters.items()}
        for name, parameter in self.optimizer.parameters.items():
            for key, value in self.optimizer.adam.state.get(parameter, {}).items():
                found[f"{name}.{key}"] = value.clone()
        return found


@pytest.fixture
def batches(make_groups: Any) -> list[Batch]:
    return [collate(make_groups(seed=seed), pad_id=0) for seed in range(4)]


@pytest.fixture
def saved(tmp_path: Path, make_model: Any, batches: list[Batch], chatml_tokenizer: Any) -> Path:
    learner = Learner(make_model)
    learner.train(batches[:1])
    save_state(tmp_path, learner.policy, learner.optimizer, chatml_tokenizer, {"step": 1})
    return tmp_path


CASES = [
    {"critic": "none"},
    {"critic": "head"},
    {"critic": "head", "name": "llama-tied"},
    {"critic": "separate"},
    {"critic": "separate", "critic_name": "llama"},
    {"critic": "separate", "critic_name": "llama", "lora": LORA},
    {"critic": "head", "lora": LORA},
    {"critic": "none", "lora": LORA, "name": "llama-tied"},
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(str(v if isinstance(v, str) else "lora") for v in c.values()))
def test_e3_e5_four_steps_equal_two_steps_saved_and_resumed_bit_for_bit(
    case: dict[str, Any], tmp_path: Path, make_model: Any, batches: list[Batch], chatml_tokenizer: Any
) -> None:
    straight = Learner(make_model, **case)
    straight.train(batches)
    first = Learner(make_model, **case)
    first.train(batches[:2])
    save_state(tmp_path, first.policy, first.optimizer, chatml_tokenizer, {"step": 2, "seen": [1, 2]})
    # A resumed run starts from the same base weights; without LoRA any weights will do.
    resumed = Learner(make_model, **case, seed=0 if "lora" in case else 9)
    load_state(tmp_path, resumed.policy, resumed.optimizer)
    assert stored_extra(tmp_path) == {"step": 2, "seen": [1, 2]}
    assert resumed.optimizer.learning_rate == first.optimizer.learning_rate
    resumed.train(batches[2:], first=2)
    first.train(batches[2:], first=2)  # saving itself changes nothing either
    wanted = straight.everything()
    assert any(name.endswith("exp_avg_sq") for name in wanted)
    for other in (resumed.everything(), first.everything()):
        assert other.keys() == wanted.keys()
        assert all(torch.equal(other[name], wanted[name]) for name in wanted)
    assert resumed.optimizer.steps == straight.optimizer.steps == 8


@pytest.mark.parametrize("lora", [None, LORA])
def test_e8_the_directory_is_a_plain_hugging_face_model_with_the_policys_own_log_probabilities(
    lora: Lora | None, tmp_path: Path, make_model: Any, batches: list[Batch], chatml_tokenizer: Any
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    learner = Learner(make_model, lora=lora, name="llama-tied")
    learner.train(batches)
    save_state(tmp_path, learner.policy, learner.optimizer, chatml_tokenizer, {})
    model, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    loaded = Policy(model, dtype=torch.float32, pad_id=0)
    torch.testing.assert_close(
        loaded.logprobs(batches[0], 100), learner.policy.logprobs(batches[0], 100), rtol=1e-4, atol=1e-4
    )
    assert AutoTokenizer.from_pretrained(tmp_path).encode("Up") == chatml_tokenizer.encode("Up")


def test_h7_only_safetensors_json_and_text_are_written(saved: Path) -> None:
    kinds = {path.suffix for path in saved.iterdir()}
    assert kinds <= {".safetensors", ".json", ".jinja", ".txt"}


@pytest.mark.parametrize("name", ["optimizer.pt", "rng_state.pth", "pytorch_model.bin", "state.pkl"])
def test_h7_a_pickled_file_is_refused_and_never_read(name: str, saved: Path, make_model: Any) -> None:
    import pickle

    witness = saved.parent / "witness"

    class Evil:
        def __reduce__(self) -> Any:
            return (Path.touch, (witness,))

    (saved / name).write_bytes(pickle.dumps(Evil()))
    learner = Learner(make_model)
    with pytest.raises(CheckpointError, match=name):
        load_state(saved, learner.policy, learner.optimizer)
    assert not witness.exists()


@pytest.mark.parametrize("name", ["state.json", "optimizer.safetensors", "critic.safetensors", "model.safetensors"])
@pytest.mark.parametrize("damage", ["missing", "cut", "foreign"])
def test_e5_a_missing_cut_or_foreign_piece_is_an_error_that_names_it(
    name: str, damage: str, saved: Path, make_model: Any
) -> None:
    path = saved / name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"\x80\x04not ours")
    learner = Learner(make_model)
    with pytest.raises(CheckpointError, match=name if name != "model.safetensors" else str(saved)):
        load_state(saved, learner.policy, learner.optimizer)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("critic.safetensors", "value_head.weight"),
        ("optimizer.safetensors", "model.lm_head.weight.exp_avg"),
        ("model.safetensors", "model.norm.weight"),
    ],
)
def test_e5_one_missing_tensor_is_an_error_that_names_it(name: str, key: str, saved: Path, make_model: Any) -> None:
    tensors = load_file(saved / name)
    del tensors[key]
    save_file(tensors, saved / name, metadata={"format": "pt"})
    learner = Learner(make_model)
    with pytest.raises(CheckpointError, match=key.replace(".", r"\.")):
        load_state(saved, learner.policy, learner.optimizer)


def test_e5_a_tensor_of_another_shape_and_a_lost_counter_are_errors(saved: Path, make_model: Any) -> None:
    learner = Learner(make_model)
    tensors = load_file(saved / "critic.safetensors")
    save_file(tensors | {"value_head.weight": torch.zeros(1, 8)}, saved / "critic.safetensors")
    with pytest.raises(CheckpointError, match=r"value_head\.weight has shape \(1, 8\), this run needs \(1, 32\)"):
        load_state(saved, learner.policy, learner.optimizer)
    save_file(tensors, saved / "critic.safetensors")
    state = json.loads((saved / "state.json").read_text())
    del state["optimizer"]["steps"]
    (saved / "state.json").write_text(json.dumps(state))
    with pytest.raises(CheckpointError, match="counter 'steps'"):
        load_state(saved, learner.policy, learner.optimizer)


def test_another_kind_of_policy_is_refused_by_what_differs(saved: Path, make_model: Any) -> None:
    for case, what in (
        ({"critic": "none"}, "critic"),
        ({"critic": "head", "name": "gpt2"}, "architecture"),
        ({"critic": "head", "lora": LORA}, "lora"),
    ):
        learner = Learner(make_model, **case)
        with pytest.raises(CheckpointError, match=f"has {what} "):
            load_state(saved, learner.policy, learner.optimizer)
    with pytest.raises(CheckpointError, match="does not exist"):
        load_state(saved / "nowhere", learner.policy, learner.optimizer)


def test_adapters_are_refused_on_other_base_weights(tmp_path: Path, make_model: Any, chatml_tokenizer: Any) -> None:
    learner = Learner(make_model, lora=LORA)
    save_state(tmp_path, learner.policy, learner.optimizer, chatml_tokenizer, {})
    other = Learner(make_model, lora=LORA, seed=1)
    with pytest.raises(CheckpointError, match="base_weights"):
        load_state(tmp_path, other.policy, other.optimizer)


def test_lora_changes_nothing_at_first_trains_adapters_only_and_merges_to_the_same_outputs(
    make_model: Any, batches: list[Batch]
) -> None:
    plain = Policy(make_model(), dtype=torch.float32, pad_id=0)
    learner = Learner(make_model, lora=LORA, critic="none")
    # adapters run through transformers, the plain model through the native pass: equal to rounding
    torch.testing.assert_close(learner.policy.logprobs(batches[0], 100), plain.logprobs(batches[0], 100))
    assert set(learner.policy.actor_parameters()) == {f"model.{name}" for name in adapters(learner.policy.model)}
    learner.train(batches)
    moved = learner.policy.logprobs(batches[0], 100)
    assert float((moved - plain.logprobs(batches[0], 100)).abs().max()) > 1e-3
    state = merged_state(learner.policy.model)
    assert state.keys() == plain.model.state_dict().keys()
    plain.model.load_state_dict(learner.policy.weights())
    torch.testing.assert_close(plain.logprobs(batches[0], 100), moved, rtol=1e-4, atol=1e-4)


def test_lora_initial_values_depend_on_their_seed_and_on_no_global_generator(make_model: Any) -> None:
    one, same, other = (adapters(Learner(make_model, lora=Lora(rank=2, seed=seed)).policy.model) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)
    model = make_model()
    state = torch.random.get_rng_state()
    Policy(model, dtype=torch.float32, pad_id=0, lora=LORA, critic="head")
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("lora", [None, LORA])
def test_the_reference_stays_what_the_policy_was(lora: Lora | None, make_model: Any, batches: list[Batch]) -> None:
    learner = Learner(make_model, lora=lora, critic="none")
    learner.train(batches[:1])
    reference = Reference(learner.policy)
    before = learner.policy.logprobs(batches[0], 100)
    assert torch.equal(reference.logprobs(batches[0], 100), before)
    learner.train(batches[1:])
    after = learner.policy.logprobs(batches[0], 100)
    torch.testing.assert_close(reference.logprobs(batches[0], 100), before, rtol=0, atol=1e-6)
    assert torch.equal(learner.policy.logprobs(batches[0], 100), after)
    assert float((after - before).abs().max()) > 1e-3


def test_unknown_lora_targets_are_refused_and_a_missing_peft_says_what_to_install(
    make_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"model\.lora\.targets is 'nothing_here'"):
        Learner(make_model, lora=Lora(rank=2, targets="nothing_here"))
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(ModelError, match=r"pip install .*\[lora\]"):
        Learner(make_model, lora=LORA)
