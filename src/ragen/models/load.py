"""Loading tokenizers and causal LMs the way training needs them."""

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedModel
from transformers.utils import logging as transformers_logging

from ragen.errors import ModelError
from ragen.models.allocator import bound_memory
from ragen.models.checks import check_causal, check_finite

INDEX = "model.safetensors.index.json"
TOKENIZER_FILES = ("*token*", "vocab*", "*.model")


def load_tokenizer(path: Path, *, trust_remote_code: bool = False) -> Any:
    """The fast tokenizer in a directory.

    Without a pad token the end-of-sequence token pads: masks go by position, so nothing is confused, and no embedding is
    added. Raises ModelError if there is no tokenizer, no fast one, or neither a pad nor an end-of-sequence token, and where
    the model's configuration, which tells the kind of tokenizer, is broken.
    """
    if (path / "config.json").is_file():
        read_config(path, trust_remote_code=trust_remote_code)
    if path.is_dir() and not any(file.is_file() for name in TOKENIZER_FILES for file in path.glob(name)):
        raise ModelError(
            f"{path} has no tokenizer: no file there is called {' or '.join(TOKENIZER_FILES)}. Put the files of the model's "
            "tokenizer beside its weights (tokenizer.save_pretrained(DIRECTORY) writes them)"
        )
    with quiet_transformers():
        try:
            tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code, local_files_only=True)
        except Exception as error:  # whatever stands in the files
            why = _reason(error, "a file of the tokenizer (tokenizer.json, tokenizer_config.json)")
            raise ModelError(f"{path} has no tokenizer that can be loaded: {why}") from None
    if len(tokenizer) <= len(set(tokenizer.all_special_ids)):  # transformers makes one up where a file is missing
        raise ModelError(
            f"the tokenizer in {path} knows no words: a file of it is missing (most keep their words in tokenizer.json)"
        )
    if not tokenizer.is_fast:
        raise ModelError(
            f"the tokenizer in {path} is not a fast one (tokenizer.json); save it as one or choose another model"
        )
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise ModelError(
                f"the tokenizer in {path} has neither a pad nor an end-of-sequence token: set one of them in it"
            )
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(path: Path, *, device: torch.device, trust_remote_code: bool = False) -> PreTrainedModel:
    """The causal LM in a directory, in float32 and evaluation mode, with every dropout at 0.

    Dropout is off for good: the sampler, π_old and the loss must see one and the same policy.
    Raises ModelError for a directory without configuration, with another kind of model, with missing or non-finite weights,
    or with weights that are not safetensors.
    """
    config = read_config(path, trust_remote_code=trust_remote_code)
    weight_files(path)
    bound_memory()
    with quiet_transformers():
        try:
            model, info = AutoModelForCausalLM.from_pretrained(
                path,
                config=config,
                dtype=torch.float32,
                trust_remote_code=trust_remote_code,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
            )
        except Exception as error:  # the classes of transformers compute with what stands in config.json
            why = _reason(error, "config.json")
            raise ModelError(f"{path} does not load as a causal language model: {why}") from None
    if info["missing_keys"]:
        missing = sorted(info["missing_keys"])
        raise ModelError(
            f"{path} lacks {len(missing)} weights of a {type(model).__name__} (such as '{missing[0]}'): it is not a causal "
            "language model, or the checkpoint is incomplete"
        )
    remove_dropout(model)
    loaded: PreTrainedModel = model.to(device).eval()
    check_finite(loaded, str(path))
    check_causal(loaded, str(path))
    return loaded


def read_config(path: Path, *, trust_remote_code: bool = False) -> PretrainedConfig:
    """The configuration of the model in a directory. Raises ModelError where there is none, or a broken one."""
    if not (path / "config.json").is_file():
        raise ModelError(f"{path} has no config.json: it is not a Hugging Face model directory")
    with quiet_transformers():
        try:
            return AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code, local_files_only=True)
        except Exception as error:  # whatever stands in the file: the classes of transformers compute with it unchecked
            why = _reason(error, "it")
            raise ModelError(f"{path / 'config.json'} does not load as a model's configuration: {why}") from None


def weight_files(path: Path) -> list[Path]:
    """The safetensors files of the model in a directory. Raises ModelError where there are none, or where one is missing."""
    files = sorted(path.glob("model*.safetensors"))
    if files:
        _check_index(path)
        return files
    if pickled := sorted(file.name for file in path.glob("pytorch_model*.bin")):
        raise ModelError(
            f"{path} holds its weights as {pickled[0]}, a pickle, which RAGEN does not open: convert it once where you "
            "trust it (load it with transformers, then model.save_pretrained(DIRECTORY) writes model.safetensors)"
        )
    raise ModelError(f"{path} holds no weights (model*.safetensors): copy them there, or choose another model")


def save_model(model: Any, tokenizer: Any, folder: Path, *, state: Mapping[str, torch.Tensor] | None = None) -> None:
    """Write a plain Hugging Face directory: safetensors, config, tokenizer; ``state`` replaces the model's own weights."""
    with quiet_transformers():
        model.save_pretrained(folder, state_dict=state)
        tokenizer.save_pretrained(folder)


def remove_dropout(model: torch.nn.Module) -> None:
    """Set every dropout probability of a model (modules, functional ones kept as numbers, configuration) to 0."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    config = getattr(model, "config", None)
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", {}))):
        for name, value in list(vars(part).items()) if part is not None else []:
            if (name.endswith(("dropout", "pdrop")) or name.startswith("dropout")) and isinstance(value, float):
                setattr(part, name, 0.0)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """No progress bars, log lines or warnings from transformers inside the block (errors still raise)."""
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _check_index(path: Path) -> None:
    """Raise ModelError for weights in several files whose index is broken, or names a file that is not there."""
    index = path / INDEX
    if not index.is_file() or (path / "model.safetensors").is_file():  # one file needs no index
        return
    try:
        named = {path / str(name) for name in json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = _reason(error, "it")
        raise ModelError(f"{index}, which tells the file of each weight, cannot be read: {why}; copy it again") from None
    if missing := sorted(file.name for file in named if not file.is_file()):
        raise ModelError(f"{path} lacks {missing[0]}, which {INDEX} names: the copy is incomplete, copy it again")


def _reason(error: BaseException, place: str) -> str:
    """What went wrong in ``place``: the first line of the message, with the next where that is a heading."""
    if isinstance(error, KeyError):  # its message is the key alone
        return f"{place} lacks an entry or holds a value that is not known: {error}"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    headed = len(lines) > 1 and lines[0].endswith(":")  # a heading says nothing without the line below it
    return " ".join(lines[: 1 + headed]) or type(error).__name__
