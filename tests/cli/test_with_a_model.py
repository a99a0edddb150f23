"""The commands that load a model, on a random one of a few thousand parameters."""

import json
import shutil

import pytest

from ragen.cli import bench
from ragen.cli.main import main
from ragen.config import load_config
from ragen.errors import RagenError
from ragen.runs.directory import RunDirectory

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FORGETFUL = (
    "{% for m in messages %}{% if m['role'] == 'user' or loop.last %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + "
    "'<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SMALL = [
    "--warmup.data=none",
    "--rollout.groups=2",
    "--rollout.members=2",
    "--rollout.max_new_tokens=4",
    "--eval.episodes=3",
    "--model.dtype=float32",
]


@pytest.fixture(scope="module")
def make_model(make_tokenizer, save_llama, tmp_path_factory):
    def make(template):
        tokenizer = make_tokenizer(template, ["<|im_start|>", "<|im_end|>"], eos="<|im_end|>")
        return save_llama(tmp_path_factory.mktemp("model"), tokenizer, num_hidden_layers=1)

    return make


@pytest.fixture(scope="module")
def model(make_model):
    return make_model(CHATML)


def test_g10_doctor_proves_the_template_and_previews_the_mask(model, capsys):
    from safetensors.torch import load_file

    assert main(["doctor", str(model)]) == 0
    text = capsys.readouterr().out
    parameters = sum(t.numel() for t in load_file(model / "model.safetensors").values())
    assert f"{parameters / 1e6:.1f}M parameters" in text
    for part in ("device:", "float32", "GiB are free", "history stays a prefix", "masks go by position", "disk (runs)"):
        assert part in text
    preview = text[text.index("mask preview") :]
    assert preview.count("⟦") == 2
    assert "<answer>Up</answer><|im_end|>⟧" in preview
    assert "⟦<|im_start|>" not in preview


def test_a1_doctor_says_why_a_template_that_rewrites_history_is_one_segment_a_turn(make_model, capsys):
    assert main(["doctor", str(make_model(FORGETFUL))]) == 0
    text = capsys.readouterr().out
    assert "rollout.context single" in text
    assert text[text.index("mask preview") :].count("⟦") == 2


def test_doctor_calls_a_model_without_template_bad(make_model, capsys):
    assert main(["doctor", str(make_model(None))]) == 1
    assert "BAD  chat template" in capsys.readouterr().out


def test_doctor_alone_tells_what_the_machine_has(capsys):
    import os

    assert main(["doctor", "--run.threads", "1"]) == 0
    text = capsys.readouterr().out
    for part in (f"{os.cpu_count()} logical cores · threads: 1", "GiB free of", "bfloat16 is", "torch", "disk (cache)"):
        assert part in text


def test_doctor_names_a_device_that_is_not_there_and_a_model_that_is_not_one(tmp_path, capsys):
    assert main(["doctor", "--model.device", "cuda:99"]) == 1
    assert "BAD  device:" in capsys.readouterr().out
    assert main(["doctor", str(tmp_path)]) == 1
    assert "BAD  model:" in capsys.readouterr().out


def test_d8_doctor_tells_too_little_memory_before_a_run_does(model, capsys, monkeypatch):
    from ragen.models import memory

    monkeypatch.setattr(memory, "available_memory", lambda device: 1000)
    assert main(["doctor", str(model)]) == 1
    assert "BAD  memory (run):" in capsys.readouterr().out


def test_d8_doctor_asks_for_what_the_run_itself_would_ask_for(model, capsys, monkeypatch):
    from ragen.loops import opening

    asked = []
    monkeypatch.setattr(opening, "memory_needed", lambda size, config, device: asked.append(config) or 3 * 2**30)
    assert main(["doctor", str(model), "--loss", "dpo", "--advantage", "none"]) == 0
    assert "training needs about 3.0 GiB" in capsys.readouterr().out
    assert asked[0].loss.name == "dpo"


def family(name, vocabulary):
    import transformers as hf

    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": vocabulary}
    if name == "gpt2":
        return hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    if name == "gptj":
        return hf.GPTJForCausalLM(hf.GPTJConfig(**sizes, rotary_dim=4, bos_token_id=0, eos_token_id=0))
    return hf.BloomForCausalLM(hf.BloomConfig(hidden_size=16, n_layer=1, n_head=2, vocab_size=vocabulary))


@pytest.mark.parametrize("name", ["gpt2", "gptj", "bloom"])
def test_a_family_with_other_names_for_its_sizes_is_doctored_trained_and_evaluated(
    name, make_tokenizer, tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tokenizer = make_tokenizer(CHATML, ["<|im_start|>", "<|im_end|>"], eos="<|im_end|>")
    family(name, len(tokenizer)).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    assert main(["doctor", "model"]) == 0
    words = ["bandit-starpo-s-grpo-tiny", "--model", "./model", *SMALL, "--run.name", "one", "--steps", "1"]
    assert main(["train", *words, "--filter.strategy", "none", "--quiet"]) == 0
    assert main(["eval", "one", "--quiet", "--no-players"]) == 0
    assert "bandit: success" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["train", "eval", "doctor"])
def test_a_vocabulary_smaller_than_the_tokenizer_stops_every_command(command, make_tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tokenizer = make_tokenizer(CHATML, ["<|im_start|>", "<|im_end|>"], eos="<|im_end|>")
    family("gpt2", len(tokenizer) - 1).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    source = {"train": ["bandit-starpo-s-grpo-tiny", "--model", "./model"]}.get(command, ["./model"])
    settings = SMALL[3:] if command == "eval" else SMALL  # those that mean something there
    assert main([command, *source, *settings]) > 0
    captured = capsys.readouterr()
    assert "do not belong together" in captured.out + captured.err


def test_e8_train_show_resume_and_eval_on_one_run(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    preset = ["bandit-starpo-s-grpo-tiny", "--model", str(model), *SMALL, "--run.name", "one"]
    assert main(["train", *preset, "--steps", "1", "--filter.strategy", "none"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    assert "tokens/s" in text
    assert "ragen train --resume runs/one" in text
    assert main(["train", "--resume", "one", "--steps", "2", "--quiet"]) == 0
    capsys.readouterr()
    run = RunDirectory.open("one")
    assert [m["step"] for m in run.metrics()] == [1, 2]
    assert main(["show", "one", "--step", "2", "--limit", "1"]) == 0
    assert "<|im_start|>assistant" in capsys.readouterr().out
    for target in ("one", str(run.checkpoints.latest()), "one/checkpoints", "runs/one/checkpoints"):
        assert main(["eval", target, "--episodes", "5", "--temperature", "0", "--seed", "7", "--json", "-"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["episodes"], report["temperature"], report["seed"], report["env"]) == (5, 0.0, 7, "bandit")
    assert main(["train", *preset]) == 2
    assert "--resume" in capsys.readouterr().err
    assert main(["train", "--resume", "one", "--optim.learning_rate", "1"]) == 2
    assert "start a new run" in capsys.readouterr().err


def test_n40_a_run_evaluated_on_instances_its_training_may_have_seen_says_so(model, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["frozen_lake-starpo-s-grpo-tiny", "--model", str(model), *SMALL, "--run.name", "one", "--steps", "0"]
    run = RunDirectory.create(load_config(words[0], words[1:]))
    run.checkpoints.save(0, lambda folder: shutil.copytree(model, folder, dirs_exist_ok=True))
    note = "initial states were not kept out of this run's training"
    for change, said in (([], None), (["--episodes", "2"], None), (["--episodes", "5"], 2), (["--seed", "7"], 3)):
        assert main(["eval", "one", "--quiet", "--no-players", *change]) == 0
        text = capsys.readouterr().out
        assert (note in text) == (said is not None)
        assert said is None or f"{said} of {5 if said == 2 else 3} {note}" in text.replace("\n  ", " ")
    for other in (["--env", "bandit", "--seed", "7"], ["--env", "frozen_lake-det", "--seed", "7"]):
        assert main(["eval", "one", "--quiet", "--no-players", *other]) == 0
        assert note not in capsys.readouterr().out


def test_eval_of_a_plain_model_on_another_environment(model, tmp_path, capsys):
    report = tmp_path / "report.json"
    words = ["eval", str(model), "--env", "frozen_lake-det", "--env.max_turns", "1", "--episodes", "2"]
    words += ["--rollout.max_new_tokens", "4", "--no-players"]
    assert main([*words, "--json", str(report)]) == 0
    text = capsys.readouterr().out
    assert "frozen_lake-det: success" in text
    assert "best possible" in text
    assert "stored" not in text
    stored = json.loads(report.read_text())
    assert stored["settings"]["max_turns"] == 1
    assert stored["players"] == {}
    assert main(words) == 0
    assert capsys.readouterr().out.endswith("--name NAME keeps the episodes and this report, --json FILE the report.\n")


def test_warmup_makes_a_model_directory(model, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "cache"))
    words = [
        "warmup",
        "bandit-starpo-s-grpo-tiny",
        "--model",
        str(model),
        "--warmup.demonstrations",
        "8",
        "--warmup.epochs",
        "1",
    ]
    out = tmp_path / "out"
    assert main([*words, "--out", str(out), "--model.dtype", "float32"]) == 0
    assert (out / "config.json").is_file()
    assert f"ragen eval {out} --env bandit" in capsys.readouterr().out
    assert main([*words, "--out", str(out)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_the_runs_name_is_the_presets_unless_it_is_given_one(model, tmp_path, monkeypatch):
    from ragen.loops import train as loop

    seen = []

    def stop(config, *, label, **_):
        seen.append((config.run.name, label))
        raise RagenError("enough")

    monkeypatch.setattr(loop, "train", stop)
    assert main(["train", "bandit-starpo-s-grpo-tiny", "--seed", "3"]) == 2
    assert main(["train", "bandit-starpo-s-grpo-tiny", "--run.name", "mine"]) == 2
    (tmp_path / "lock.py").write_text("from ragen.envs.bandit import Bandit\n\n\nclass Lock(Bandit):\n    pass\n")
    lock = f"{tmp_path / 'lock.py'}:Lock"
    assert main(["train", "bandit-starpo-s-grpo-tiny", "--env", lock]) == 2
    assert seen == [
        ("", "bandit-starpo-s-grpo-tiny"),
        ("mine", "bandit-starpo-s-grpo-tiny"),
        ("", "Lock-starpo-s-grpo-tiny"),
    ]


def test_bench_prints_a_step_in_parts(model, capsys):
    words = ["--groups=2", "--members=2", "--prompt=6", "--new=3", "--turns=2", "--between=4", "--steps=1"]
    assert main(["bench", str(model), *words, "--model.dtype=float32", "--run.threads=1"]) == 0
    said = capsys.readouterr().out
    for part in (
        "float32, 1 thread\n",
        "step 0 ",
        "warm-up",
        "step 1 ",
        "sampling ",
        "by turn",
        "update ",
        "peak memory",
        "sokoban",
    ):
        assert part in said, part


@pytest.mark.parametrize(("after", "rate", "said"), [(90e9, 100e9, False), (70e9, 100e9, True), (140e9, 140e9, True)])
def test_bench_takes_the_faster_product_and_says_where_the_machine_is_not_quiet(after, rate, said, capsys):
    assert bench._steady(100e9, after) == rate
    assert ("other work disturbs, so the shares are rough" in capsys.readouterr().out) is said


def test_bench_refuses_sizes_that_cannot_be_and_settings_that_change_nothing(model, capsys):
    cases = (
        (["--groups", "0"], "'0' is not a whole number"),
        (["--turns", "50"], "does not fit"),
        (["--rollout.groups", "4"], "'rollout.groups' means nothing to ragen bench"),
        (["--rollout.members", "4"], "the sizes are options of its own: --groups, --members, --prompt, --new"),
        (["--optim", "{learning_rate: 1e-5}"], "'optim.learning_rate' means nothing"),
    )
    for words, named in cases:
        assert main(["bench", str(model), *words]) == 2
        assert named in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "work", "advice"),
    [
        (["eval", "MODEL", "--episodes", "2"], "ragen.api.evaluate_agent", "--name NAME keeps what is played"),
        (["compare", "MODEL", "MODEL", "--episodes", "2"], "ragen.api.evaluate_agent", "is compared as files"),
    ],
)
def test_what_ctrl_c_leaves_of_it_is_told(words, work, advice, model, capsys, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, stopped)
    assert main([str(model) if word == "MODEL" else word for word in words]) == 130
    said = capsys.readouterr().err
    assert said.startswith("\ninterrupted: nothing of it is kept, and the same command begins anew; ")
    assert said.endswith(f"{advice}\n")
