"""Shared fixtures: small tokenizers made on the spot, one compute thread, a cache of one's own."""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before anything imports torch: tests are small, run on shared cores, and must give the same sums everywhere.
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# A shell starts background jobs with Ctrl-C ignored, and their processes inherit that: tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# No test is timed: the machine may be busy. `make test` tries the same cases everywhere, `make test-full` new ones each time.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)
settings.load_profile("same")

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CORPUS = [
    "system user assistant model Reply Reward Actions Left Down Right Up left actions in all turns",
    "<think>I will go Up then Left.</think><answer>Up || Left</answer> Choose one: Phoenix, Dragon.",
    "Walk to the goal. Think about what the names suggest, then answer. Which way? 0 1 2 3.5 -0.1",
] * 3

MakeTokenizer = Callable[..., Any]
SaveLlama = Callable[..., Path]


@pytest.fixture(scope="session")
def make_tokenizer() -> MakeTokenizer:
    """``make(template, specials, bos=, eos=, pad=, adds_bos=, added=, vocab_size=)``: a byte-level BPE tokenizer.

    ``specials`` are strings or ``tokenizers.AddedToken``s that become special tokens, ``added`` ones that are not special;
    their ids follow the vocabulary in this order. ``adds_bos``: the tokenizer puts ``bos`` in front by itself.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    def make(
        template: str | None,
        specials: Sequence[Any],
        *,
        bos: str | None = None,
        eos: str | None = None,
        pad: str | None = None,
        adds_bos: bool = False,
        added: Sequence[Any] = (),
        vocab_size: int = 400,
    ) -> Any:
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        backend.train_from_iterator(
            CORPUS, trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False)
        )
        backend.add_special_tokens([s if isinstance(s, AddedToken) else AddedToken(s, special=True) for s in specials])
        backend.add_tokens(list(added))
        if adds_bos:
            number = backend.token_to_id(bos)
            backend.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, number)])
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=bos, eos_token=eos, pad_token=pad)
        tokenizer.chat_template = template
        return tokenizer

    return make


@pytest.fixture(scope="session")
def chatml_tokenizer(make_tokenizer: MakeTokenizer) -> Any:
    """ChatML with ``<|endoftext|>`` as a second end token; pad is the end of turn (case A6)."""
    specials = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    return make_tokenizer(CHATML, specials, bos="<|im_start|>", eos="<|endoftext|>", pad="<|im_end|>")


@pytest.fixture(scope="session")
def save_llama() -> SaveLlama:
    """``save_llama(folder, tokenizer, **sizes)``: write a random Llama of these sizes and its tokenizer into ``folder``."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    def save(folder: Path, tokenizer: Any, **sizes: Any) -> Path:
        few = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "max_position_embeddings": 512}
        heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "tie_word_embeddings": True}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **few | heads | sizes))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return folder

    return save


@pytest.fixture
def ragen_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory for this test; ask for it wherever a test would write to the user's cache."""
    path = tmp_path / "ragen-cache"
    monkeypatch.setenv("RAGEN_CACHE", str(path))
    return path
