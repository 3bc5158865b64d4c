"""Steer and attach layers in models that nnsight wraps: FOLDER → largest difference of logits, per architecture.

In each case, the logits that nnsight reads are compared with those of the plain model in the same block.
"""

from pathlib import Path

import torch
from nnsight import LanguageModel
from torch import Tensor
from transformers import PreTrainedModel

from tests.interop.oracles.small_runs import IDS, SmallRun, report


def traced(wrapped: LanguageModel) -> Tensor:
    """Logits of the prompt, read in a trace."""
    with wrapped.trace({"input_ids": IDS}):
        logits = wrapped.output.logits.save()
    result: Tensor = logits
    return result


def plain(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        result: Tensor = model(IDS).logits
    return result


def differences(small: SmallRun, _folder: Path) -> dict[str, float]:
    model = small.model
    before = plain(model)
    wrapped = LanguageModel(model, tokenizer=small.tokenizer)
    with small.layer.steer(model, small.edits):
        steered = traced(wrapped)
    with small.layer.steer(model, small.edits):
        expected = plain(model)
    assert (expected - before).abs().max() > 1e-3, "The edits change nothing"
    restored = traced(wrapped)
    attached = small.layer.attach(model, small.edits)
    expected_attached, read = plain(model), traced(LanguageModel(model, tokenizer=small.tokenizer))
    attached.detach()
    pairs = {"steer": (steered, expected), "attach": (read, expected_attached), "restored": (restored, before)}
    return {name: float((a - b).abs().max()) for name, (a, b) in pairs.items()}


report("nnsight", differences)
