"""Device and compute type: what is asked, what is there."""

import pytest
import torch

from ragen.errors import ConfigError
from ragen.models import device as module
from ragen.models.device import bfloat16_pays, choose_device, choose_dtype, cpu_flags

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh():
    bfloat16_pays.cache_clear()
    yield
    bfloat16_pays.cache_clear()


@pytest.mark.parametrize(("cuda", "mps", "kind"), [(True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")])
def test_d12_auto_takes_the_best_device(monkeypatch, cuda, mps, kind):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert choose_device("auto").type == kind


def test_d12_a_device_that_is_not_there_or_nonsense_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert choose_device("cpu") == CPU
    assert choose_device("cuda:0") == torch.device("cuda:0")
    with pytest.raises(ConfigError, match=r"'cuda:3', but this machine offers"):
        choose_device("cuda:3")
    with pytest.raises(ConfigError, match="'toaster': known are 'auto'"):
        choose_device("toaster")
    with pytest.raises(ConfigError, match="'meta'"):
        choose_device("meta")


@pytest.mark.parametrize(
    ("flags", "probe", "dtype"),
    [
        ({"avx512_bf16"}, False, torch.bfloat16),
        ({"amx_bf16"}, False, torch.bfloat16),
        (set(), True, torch.bfloat16),
        ({"avx2"}, False, torch.float32),
    ],
)
def test_d12_auto_dtype_goes_by_capability_then_by_a_probe(monkeypatch, flags, probe, dtype):
    monkeypatch.setattr(module, "cpu_flags", lambda: frozenset(flags))
    monkeypatch.setattr(module, "_probe", lambda: probe)
    assert choose_dtype("auto", CPU) == dtype
    assert choose_dtype("auto", CPU, parameters=135_000_000) == dtype
    assert choose_dtype("auto", CPU, parameters=2_000_000) == torch.float32


def test_an_explicit_dtype_is_obeyed_and_another_name_refused():
    assert choose_dtype("bfloat16", CPU, parameters=10) == torch.bfloat16
    assert choose_dtype("float32", torch.device("cuda")) == torch.float32
    assert choose_dtype("auto", torch.device("mps")) == torch.float32
    with pytest.raises(ConfigError, match="'float16': known are"):
        choose_dtype("float16", CPU)


def test_the_probe_runs_and_flags_are_words():
    assert module._probe() in (True, False)
    assert all(flag and " " not in flag for flag in cpu_flags())
