"""The Python interface with a model that the user put on the pretend device."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

import mxd
from tests.helpers.language_models import byte_tokenizer, tiny_language_model

TEXTS = [f"the {adjective} {noun} sang" for adjective in ("old", "red", "blue") for noun in ("fox", "dog")] * 40
Subject = tuple[PreTrainedModel, mxd.Layer]


@pytest.fixture(scope="module", params=["sim:0 bfloat16 llama", "sim:1 float32 gpt2"])
def subject(request: pytest.FixtureRequest, folder: Path) -> Subject:
    """A model on a device, and a run that was trained on it and indexed."""
    device, dtype, family = request.param.split()
    model: Any = tiny_language_model(family).module.to(device, getattr(torch, dtype))
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "batch_tokens": 64, "buffer_tokens": 256}
    tokenizer = byte_tokenizer()
    run = mxd.train(model, tokenizer, TEXTS, layer=1, tokens=512, name=family, data=folder, progress=False, **sizes)
    mxd.index(run, TEXTS, tokens=512, progress=False)
    return model, run


def test_every_function(subject: Subject) -> None:
    _, run = subject
    assert mxd.route(run, "old fox").tokens
    assert mxd.generate(run, "fox", {1: +2, 2: "ablate"}, max_tokens=3).text("steered")
    assert mxd.trace(run, "old fox").nodes
    mxd.contrast(run, TEXTS[:12], TEXTS[12:24], shuffles=2, progress=False)
    mxd.evaluate(run, TEXTS, tokens=128, seen_text=True, prompts=2, jacobian_tokens=4, resamples=100, progress=False)


def test_a_layer_in_a_forward_pass(subject: Subject) -> None:
    model, run = subject
    batch = {name: values.to(model.device) for name, values in run.tokenize(["old fox"]).items()}
    plain = model(**batch).logits
    activations = run.activations(model, batch)
    assert activations.shape == (*batch["input_ids"].shape, 40)
    with run.steer(model, {1: ("scale", 0.5), 3: +9}):
        assert not torch.equal(model(**batch).logits.cpu(), plain.cpu())
    with run.replace(model):
        assert model(**batch).logits.device == model.device
    assert torch.equal(model(**batch).logits.cpu(), plain.cpu())


def test_gradients_through_a_replaced_layer(subject: Subject) -> None:
    model, run = subject
    batch = {name: values.to(model.device) for name, values in run.tokenize(["old fox"]).items()}
    with torch.inference_mode():
        run.to(model.device)
    with run.replace(model):
        model(**batch).logits.float().square().mean().backward()
    assert any(parameter.grad is not None for parameter in run.parameters())
