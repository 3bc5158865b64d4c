"""Precision: dtype of the model, and of the layer's matrix products."""

from pathlib import Path
from typing import Any

import pytest
import torch

from mxd.trainer.config import OptimizerConfig
from mxd.trainer.config.layer import Method, methods
from mxd.trainer.config.training import MatmulPrecision
from mxd.trainer.errors import UserError
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.storage.run import Run
from mxd.trainer.training import precision as precisions
from mxd.trainer.training.layer_trainer import LayerTrainer
from mxd.trainer.training.precision import dtype_of, fastest_dtype, resolve_dtypes, with_dtype
from mxd.trainer.training.train import Resume, train_layer
from tests.helpers.language_models import saved_language_model, tiny_language_model
from tests.helpers.layers import TOKENS, WIDTH, layer_trainer
from tests.helpers.runs import World, stop_after

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


def test_the_requested_dtype_comes_before_that_of_the_resumed_run(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units(monkeypatch, "avx512_bf16")
    monkeypatch.setattr(precisions, "MIN_BFLOAT16_WIDTH", 1)
    source = str(saved_language_model(tmp_path / "lm"))
    new, asked = (world.config(name, language_model=source) for name in ("new", "asked"))
    asked = asked.model_copy(update={"language_model_dtype": "float32"})
    assert [it.language_model_dtype for it in resolve_dtypes([new], world.data, CPU)] == ["bfloat16"]
    assert [it.language_model_dtype for it in resolve_dtypes([asked], world.data, CPU)] == ["float32"]
    begun = world.config("begun", language_model=source)
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
        arguments = (world.config(name), world.data, world.database, language_model)
        train_layer(*arguments, resume=resume, callbacks=stop_after(steps + 1))

    train(half, "never", 9)
    assert Run.load("small", world.data).config.language_model_dtype == "bfloat16"
    with pytest.raises(UserError, match="started with another language_model_dtype"):
        train(world.language_model, "if-any", 100)
    train(half, "if-any", 100)
    train(half, "never", 100, "whole")
    world.check_same_weights("whole", "small")
    assert {value.dtype for value in world.weights("whole").values()} == {torch.float32}, "the layer's own numbers"


def test_a_model_loaded_in_another_dtype_is_an_error(world: World) -> None:
    config = world.config(language_model_dtype="bfloat16")
    with pytest.raises(
        UserError, match=r"in bfloat16, but the model was loaded in float32\. Load it with dtype=torch\.bf"
    ):
        train_layer(config, world.data, world.database, world.language_model)
    assert dtype_of("bfloat16") == torch.bfloat16


@pytest.mark.parametrize(
    ("precision", "setting", "rounds"),
    [("highest", "highest", False), ("high", "high", False), ("medium", "highest", True)],
)
def test_a_training_step_uses_the_precision_of_its_run(precision: MatmulPrecision, setting: str, rounds: bool) -> None:
    """Only TF32 is a setting of the process, which the language model's products in other threads would see."""
    trainer = _trainer("mxd", precision)
    seen: list[tuple[str, bool]] = []
    trainer.layer.register_forward_hook(
        lambda *_: seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
    )
    trainer.train_step(_batch())
    assert seen == [(setting, rounds)]


def test_the_language_model_computes_in_the_precision_of_the_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are computed in another thread, during steps and between them."""
    seen: list[str] = []
    capture = LanguageModel.capture_layers

    def recorded(language_model: LanguageModel, *words: Any) -> Any:
        seen.append(torch.get_float32_matmul_precision())
        return capture(language_model, *words)

    monkeypatch.setattr(LanguageModel, "capture_layers", recorded)
    config = world.config(init="random")
    optimizer = config.optimizer.model_copy(update={"matmul_precision": "high", "buffer_tokens": 128})
    train_layer(config.model_copy(update={"optimizer": optimizer}), world.data, world.database, world.language_model)
    assert len(seen) > 2
    assert set(seen) == {"high"}


@pytest.mark.parametrize("device", ["cpu", "cuda:1", "xpu"])
@pytest.mark.parametrize(
    ("precision", "width", "has_units", "expected"),
    [
        ("auto", 512, True, "medium"),
        ("auto", 511, True, "highest"),
        ("auto", 512, False, "highest"),
        ("medium", 8, False, "medium"),  # as recorded by another machine
        ("highest", 512, True, "highest"),
        ("high", 512, True, "high"),
    ],
)
def test_wide_layers_use_bfloat16_products_where_the_device_has_them(
    device: str, precision: MatmulPrecision, width: int, has_units: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda _device: has_units)
    assert precisions.resolved_precision(precision, torch.device(device), width) == expected
    dtype = torch.bfloat16 if expected == "medium" else torch.float32
    assert precisions.product_dtype(precision, torch.device(device), width) == dtype


def test_units_of_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A T4 has no bfloat16 units; Apple's GPUs gain nothing from them in products."""
    for has_native in (True, False):
        monkeypatch.setattr(precisions, "choose_dtype", lambda _: torch.bfloat16 if has_native else torch.float32)  # noqa: B023
        assert precisions.has_bfloat16_units(torch.device("cuda")) is has_native
        assert not precisions.has_bfloat16_units(torch.device("mps"))


@pytest.mark.parametrize("method", methods("core"))
def test_bfloat16_products_train_every_method_in_float32_up_to_rounding(
    method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precisions, "has_bfloat16_units", lambda _device: True)
    exact, rounded = _trainer(method, "highest"), _trainer(method, "medium")
    expected, output = exact.train_step(_batch()), rounded.train_step(_batch())
    assert output.output_TO.dtype == torch.float32
    difference_T = (output.output_TO - expected.output_TO).abs().amax(dim=1)
    assert difference_T.max() > 0
    # On a few tokens, rounded scores select another expert.
    assert (difference_T < 0.05 * expected.output_TO.abs().max()).sum() > 0.8 * TOKENS
    assert all(parameter.dtype == torch.float32 for parameter in rounded.layer.parameters())


def _batch() -> MlpActivations:
    generator = torch.Generator().manual_seed(1)
    return MlpActivations(*(torch.randn(TOKENS, WIDTH, generator=generator) for _ in range(2)))


def _trainer(method: Method, precision: MatmulPrecision) -> LayerTrainer:
    optimizer = OptimizerConfig(batch_tokens=TOKENS, matmul_precision=precision)
    trainer = layer_trainer(method, optimizer=optimizer)
    for parameter in trainer.layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)  # no zero decoder, so that the products show in the output
    return trainer
