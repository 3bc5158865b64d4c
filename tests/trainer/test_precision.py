"""In which numbers a language model is read: the rule, what a run keeps of it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.language_models import saved_language_model, tiny_language_model
from tests.runs import World
from trainer import precision
from trainer.errors import UserError
from trainer.language_model import LanguageModel
from trainer.ongoing import Resume
from trainer.precision import dtype_of, fitting_dtype, settled, slowness, written_down
from trainer.run import Run
from trainer.train import train

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def units(monkeypatch: pytest.MonkeyPatch, *found: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(found, True), raising=False)


@pytest.mark.parametrize(("found", "expected"), [("avx512_bf16", True), ("bf16", True), ("avx512_f", False)])
def test_a_processor_with_units_takes_bfloat16(found: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    units(monkeypatch, found)
    assert fitting_dtype(CPU, 768) == (torch.bfloat16 if expected else torch.float32)
    assert fitting_dtype(CPU, 16) == torch.float32, "narrower than was measured"
    assert fitting_dtype(GPU, 16) == torch.bfloat16


def test_older_pytorch_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert fitting_dtype(CPU, 768) == torch.float32


def test_who_reads_in_bfloat16_without_units_for_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    units(monkeypatch)
    assert "no units" in (slowness("bfloat16", CPU) or "")
    assert slowness("float32", CPU) is slowness("bfloat16", GPU) is None
    units(monkeypatch, "amx_bf16")
    assert slowness("bfloat16", CPU) is None


def test_what_is_asked_for_comes_first_then_what_a_run_was_begun_in(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units(monkeypatch, "avx512_bf16")
    monkeypatch.setattr(precision, "NARROWEST", 1)
    source = str(saved_language_model(tmp_path / "lm"))
    new, asked = (world.config(name, language_model=source) for name in ("new", "asked"))
    asked = asked.model_copy(update={"language_model_dtype": "float32"})
    assert [it.language_model_dtype for it in settled([new], world.data, CPU)] == ["bfloat16"]
    assert [it.language_model_dtype for it in settled([asked], world.data, CPU)] == ["float32"]
    begun = world.config("begun", language_model=source)
    Run.create(begun, world.data, world.language_model.tokenizer)
    assert settled([begun], world.data, CPU)[0].language_model_dtype == "float32", "as before it was written down"
    Run.create(written_down(begun, torch.bfloat16), world.data, world.language_model.tokenizer)
    units(monkeypatch)
    assert [it.language_model_dtype for it in settled([begun, new], world.data, CPU)] == ["bfloat16", "bfloat16"]


@pytest.fixture(scope="module")
def half() -> LanguageModel:
    """The tests' language model in bfloat16."""
    whole = tiny_language_model()
    return LanguageModel(whole.module.to(torch.bfloat16), whole.tokenizer, whole.source)


def test_a_run_in_bfloat16_says_so_and_goes_on_in_nothing_else(world: World, half: LanguageModel) -> None:
    def fit(language_model: LanguageModel, resume: Resume, steps: int, name: str = "small") -> None:
        left = iter([False] * steps + [True])
        stop = lambda: next(left)  # noqa: E731
        config = world.config(name)
        train(config, world.data, world.store, language_model, resume=resume, should_stop=stop)

    fit(half, "never", 9)
    assert Run.load("small", world.data).config.language_model_dtype == "bfloat16"
    with pytest.raises(UserError, match="started with another language_model_dtype"):
        fit(world.language_model, "if-any", 100)
    fit(half, "if-any", 100)
    fit(half, "never", 100, "whole")
    whole, parts = (Run.load(name, world.data).layer.state_dict() for name in ("whole", "small"))
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())
    assert {value.dtype for value in whole.values()} == {torch.float32}, "the layer's own numbers"


def test_a_language_model_in_other_numbers_than_asked_for_is_refused(world: World) -> None:
    config = world.config(language_model_dtype="bfloat16")
    with pytest.raises(UserError, match=r"in bfloat16, and that was loaded in float32; load it with dtype=torch\.bf"):
        train(config, world.data, world.store, world.language_model)
    assert dtype_of("bfloat16") == torch.bfloat16
