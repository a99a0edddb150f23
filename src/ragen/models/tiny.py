"""``tiny``: a Llama-type model of about 2 million random weights with a small tokenizer, made on the spot in seconds.

The tokenizer is byte-level BPE, so any text encodes. It is trained on the prompts and demonstrations of the built-in
environments in ROOMS, so their words, tags and grid symbols are single tokens. Everything is made from fixed seeds: the
same code gives the same files.
"""

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ragen.cache import cache_dir, made_once
from ragen.envs import Environment, environments
from ragen.models.load import quiet_transformers
from ragen.models.names import TINY
from ragen.seeding import derive, generator
from ragen.text.prompts import Task, first_message, next_message, reply_text

VERSION = 1  # raise it when the same texts would give other files
SPECIALS = ("<|pad|>", "<|im_start|>", "<|im_end|>")
VOCABULARY = 2048
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# a tag, the separator, a word, or one character alone (so that a grid is one token a cell)
PIECES = r"</?[a-z]+>| (?=</?[a-z]+>)| ?\|\|| ?[A-Z]?[a-z]+| ?[^\s]|\s"
EPISODES = 12
ROOMS = ("ragen.envs.bandit", "ragen.envs.frozen_lake", "ragen.envs.sokoban")  # a shop's prose would fill the vocabulary
INSTRUCTIONS = "The reward you get is what counts. Think first. Yes or no? It is safe, risky, good, bad, best, high, low."


def directory() -> Path:
    """The model's directory, made now unless the cache has one for the same texts."""
    name = f"{TINY}-{VERSION}-{hashlib.sha256(_joined().encode()).hexdigest()[:12]}"
    return made_once(cache_dir() / "models" / name, make)


def make(target: Path) -> None:
    """Write tokenizer and model to a directory."""
    with quiet_transformers():
        tokenizer = build_tokenizer(texts())
        tokenizer.save_pretrained(target)
        build_model(len(tokenizer), tokenizer.pad_token_id, tokenizer.eos_token_id).save_pretrained(target)


def build_tokenizer(corpus: "Iterator[str] | tuple[str, ...]") -> Any:
    """A ChatML tokenizer trained on the texts; ends of turn are its end-of-sequence token, padding has its own."""
    core = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    core.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        min_frequency=1,
        special_tokens=list(SPECIALS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer=trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=SPECIALS[0],
        eos_token=SPECIALS[2],
        additional_special_tokens=[SPECIALS[1]],
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def build_model(vocabulary: int, pad_id: int, eos_id: int, *, seed: int = 0) -> LlamaForCausalLM:
    """Random float32 weights: N(0, 0.02²) for matrices, ones for norms, in order of their names."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=3,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=pad_id,
        bos_token_id=None,
        eos_token_id=eos_id,
    )
    with torch.random.fork_rng(devices=[]):  # the class draws its own start; the caller's generator stays as it was
        model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in sorted(model.named_parameters()):
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "big")
            draw = generator(derive(seed, "model", "tiny", key)).standard_normal(tuple(weight.shape), dtype=np.float32)
            weight.copy_(torch.from_numpy(draw * np.float32(0.02)))
    return model.eval()


@cache
def texts() -> tuple[str, ...]:
    """Prompts and demonstrations of every preset of the environments in ROOMS, in both wordings, from fixed seeds."""
    names = [name for name in environments.names() if environments.get(name).cls.__module__.startswith(ROOMS)]
    corpus = [INSTRUCTIONS]
    for name in names:
        for wording in ("short", "verbose"):
            for thinking in (True, False):
                env = environments.get(name).cls(environments.get(name).settings({"wording": wording}))
                corpus += _episode_texts(env, thinking, name)
    return tuple(corpus)


def _episode_texts(env: Environment, thinking: bool, name: str) -> Iterator[str]:
    settings = env.settings
    for index in range(EPISODES if thinking and settings.wording == "short" else 2):
        rng = generator(derive(0, "tiny", name, index))
        observation = env.reset(instance_seed=index, dynamics_seed=index).text
        task = Task(
            instructions=env.instructions(),
            actions=env.forms(),
            max_turns=settings.max_turns,
            max_actions=settings.max_actions,
            max_actions_per_turn=settings.max_actions_per_turn,
            thinking=thinking,
            wording=settings.wording,
        )
        yield first_message(task, observation)
        actions = tuple(rng.choice(env.actions(), size=1 + index % min(3, settings.max_actions_per_turn)).tolist())
        yield reply_text(env.thought(rng, actions), actions, thinking=thinking)
        step = env.step(actions[0])
        yield next_message(
            task,
            reward=step.reward,
            invalid=("jump",) if index % 2 else (),
            valid_format=index % 3 > 0,
            observation=step.shown,
            actions_left=settings.max_actions - 1,
            turns_left=settings.max_turns - 1,
        )


def _joined() -> str:
    return "\x00".join(texts())
