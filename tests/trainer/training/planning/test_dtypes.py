"""Dtype of the model: default, resumed runs, errors."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.run import Run
from mxd.trainer.training.planning import dtypes as precision
from mxd.trainer.training.planning.dtypes import dtype_of, fastest_dtype, resolve_dtypes, slow_dtype_warning, with_dtype
from mxd.trainer.training.train import train_layer
from mxd.trainer.training.training_run import Resume
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.language_models import saved_language_model, tiny_language_model
from tests.helpers.runs import World

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def units(monkeypatch: pytest.MonkeyPatch, *capability: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(capability, True), raising=False)


@pytest.mark.parametrize(("capability", "expected"), [("avx512_bf16", True), ("bf16", True), ("avx512_f", False)])
def test_native_support_selects_bfloat16(capability: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    units(monkeypatch, capability)
    assert fastest_dtype(CPU, 768) == (torch.bfloat16 if expected else torch.float32)
    assert fastest_dtype(CPU, 16) == torch.float32, "narrower than was measured"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: not including_emulation)
    assert fastest_dtype(GPU, 16) == torch.bfloat16


def test_older_pytorch_selects_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert fastest_dtype(CPU, 768) == torch.float32


def test_a_warning_for_bfloat16_without_native_support(monkeypatch: pytest.MonkeyPatch) -> None:
    units(monkeypatch)
    assert "no native support" in (slow_dtype_warning("bfloat16", CPU) or "")
    assert slow_dtype_warning("float32", CPU) is slow_dtype_warning("bfloat16", GPU) is None
    units(monkeypatch, "amx_bf16")
    assert slow_dtype_warning("bfloat16", CPU) is None


def test_the_requested_dtype_comes_before_that_of_the_resumed_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units(monkeypatch, "avx512_bf16")
    monkeypatch.setattr(precision, "MIN_BFLOAT16_WIDTH", 1)
    source = str(saved_language_model(tmp_path / "lm"))
    new, asked = (world.config(name, language_model=source) for name in ("new", "asked"))
    asked = asked.model_copy(update={"language_model_dtype": "float32"})
    assert [it.language_model_dtype for it in resolve_dtypes([new], world.data, CPU)] == ["bfloat16"]
    assert [it.language_model_dtype for it in resolve_dtypes([asked], world.data, CPU)] == ["float32"]
    begun = world.config("begun", language_model=source)
    Run.create(begun, world.data, world.language_model.tokenizer)
    assert resolve_dtypes([begun], world.data, CPU)[0].language_model_dtype == "float32", (
        "as before it was written down"
    )
    Run.create(with_dtype(begun, torch.bfloat16), world.data, world.language_model.tokenizer)
    units(monkeypatch)
    assert [it.language_model_dtype for it in resolve_dtypes([begun, new], world.data, CPU)] == ["bfloat16", "bfloat16"]


@pytest.fixture(scope="module")
def half() -> LanguageModel:
    """The tiny model in bfloat16."""
    whole = tiny_language_model()
    return LanguageModel(whole.module.to(torch.bfloat16), whole.tokenizer, whole.source)


def test_a_run_saves_its_dtype_and_resumes_only_in_it(world: World, half: LanguageModel) -> None:
    def train(language_model: LanguageModel, resume: Resume, steps: int, name: str = "small") -> None:
        left = iter([False] * steps + [True])
        stop = lambda: next(left)  # noqa: E731
        config = world.config(name)
        train_layer(
            config, world.data, world.database, language_model, resume=resume, callbacks=Callbacks(is_cancelled=stop)
        )

    train(half, "never", 9)
    assert Run.load("small", world.data).config.language_model_dtype == "bfloat16"
    with pytest.raises(UserError, match="started with another language_model_dtype"):
        train(world.language_model, "if-any", 100)
    train(half, "if-any", 100)
    train(half, "never", 100, "whole")
    whole, parts = (Run.load(name, world.data).layer.state_dict() for name in ("whole", "small"))
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())
    assert {value.dtype for value in whole.values()} == {torch.float32}, "the layer's own numbers"


def test_a_model_loaded_in_another_dtype_is_an_error(world: World) -> None:
    config = world.config(language_model_dtype="bfloat16")
    with pytest.raises(
        UserError, match=r"in bfloat16, but the model was loaded in float32\. Load it with dtype=torch\.bf"
    ):
        train_layer(config, world.data, world.database, world.language_model)
    assert dtype_of("bfloat16") == torch.bfloat16
