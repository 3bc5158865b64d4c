"""The dtype of the language model, as ``--dtype`` says: loaded for the command, and for the server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.backend.cli.main import run
from mxd.backend.inference.worker import ModelWorker
from mxd.backend.settings import Settings
from mxd.trainer.language_model import loading
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.utils.devices import DeviceMemory


@pytest.fixture
def loaded(trained: Path, monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """Dtypes of the language models that are loaded from now on."""
    dtypes: list[torch.dtype] = []
    load = LanguageModel.load

    def recorded(*words: Any, **more: Any) -> LanguageModel:
        language_model = load(*words, **more)
        dtypes.append(language_model.dtype)
        return language_model

    monkeypatch.setattr(LanguageModel, "load", recorded)
    return dtypes


@pytest.mark.parametrize(
    "words",
    [["route", "small", "the old fox"], ["steer", "small", "the old fox", "--edit", "1:add:2", "--max-tokens", "2"]],
)
def test_commands_load_the_language_model_in_the_dtype(loaded: list[torch.dtype], words: list[str]) -> None:
    assert run(words) == run([*words, "--dtype", "bfloat16"]) == 0
    assert loaded == [torch.float32, torch.bfloat16]


def test_circuits_are_in_float32_if_the_language_model_fits(
    loaded: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["circuit", "small", "--prompt", "the old fox"]
    monkeypatch.setattr(loading, "choose_dtype", lambda _device: torch.bfloat16)
    monkeypatch.setattr("mxd.trainer.language_model.model.choose_dtype", lambda _device: torch.bfloat16)
    weights = sum(weight.numel() for weight in loading.load_outline("lm").parameters())
    for free in (8 * weights, 8 * weights - 1):
        monkeypatch.setattr(loading, "device_memory", lambda _device, free=free: DeviceMemory(free, free))
        assert run(words) == 0
    assert run([*words, "--dtype", "bfloat16"]) == 0
    assert loaded == [torch.float32, torch.bfloat16, torch.bfloat16]


def test_the_server_loads_language_models_in_the_dtype(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MXD_DTYPE", "bfloat16")
    worker = ModelWorker("lm", "cpu", 4, Settings().dtype)
    try:
        assert worker.call(lambda language_model: language_model.dtype).result(30) == torch.bfloat16
    finally:
        worker.close()
