"""Small runs on random language models, for programs that hook models."""

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import mxd
from tests.api.conftest import FAMILIES, texts, user_model
from tests.helpers.runs import byte_tokenizer

IDS = torch.tensor([[5, 80, 101, 32, 111, 7, 99, 101]])
"""Token ids of a prompt, [1, T]."""


@dataclass(frozen=True)
class SmallRun:
    """A user's model and a layer of it."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    layer: mxd.Layer
    edits: dict[int, float]
    """Edit of the most active expert."""


def train_run(family: str, folder: Path) -> SmallRun:
    """Train a layer for a few steps."""
    model, tokenizer = user_model(family), byte_tokenizer()
    sizes: dict[str, Any] = {"num_experts": 40, "k": 4, "context_length": 16, "batch_tokens": 64, "buffer_tokens": 512}
    layer = mxd.train(
        model, tokenizer, list(texts()), layer=1, tokens=1536, name="small", data=folder, progress=False, **sizes
    )
    activations = layer.activations(model, {"inputs_embeds": model.get_input_embeddings()(IDS)})
    return SmallRun(model, tokenizer, layer, {int(activations.sum(dim=(0, 1)).to_dense().argmax()): 6.0})


@torch.no_grad()
def logits(model: PreTrainedModel) -> Tensor:
    """Logits of the prompt, by the plain model."""
    result: Tensor = model(IDS).logits
    return result


def differences_of(
    small: SmallRun, model: Any, read: Callable[[str], Tensor], plain: Callable[[Any], Tensor]
) -> dict[str, float]:
    """Largest difference between what a program reads and the plain model computes: without the layer, in each way to
    use it, whose name ``read`` gets, and without it again."""
    layer, before = small.layer, plain(model)
    uses: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": nullcontext,
        "steer": lambda: layer.steer(model, small.edits),
        "replace": lambda: layer.replace(model),
        "attach": lambda: layer.attach(model, small.edits),
        "restored": nullcontext,
    }
    found = {}
    for name, use in uses.items():
        with use():
            expected = plain(model)
            found[name] = float((read(name) - expected).abs().max())
        is_used = name not in ("plain", "restored")
        assert ((expected - before).abs().max() > 1e-3) == is_used, "The layer changes nothing, or more than it may"
    return found


def report(package: str, differences: Callable[[SmallRun, Path], dict[str, float]]) -> None:
    """Print the largest differences of each architecture as JSON. The folder for files is the first argument."""
    folder = Path(sys.argv[1])
    found = {name: differences(train_run(name, folder / name), folder / f"{name}-model") for name in FAMILIES}
    print(json.dumps({"version": version(package), "differences": found}))
