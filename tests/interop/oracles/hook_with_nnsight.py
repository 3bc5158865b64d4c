"""Steer and attach layers in models that nnsight wraps: FOLDER → largest difference of logits, per architecture."""

from pathlib import Path

from nnsight import LanguageModel
from torch import Tensor

from tests.interop.oracles.small_runs import IDS, SmallRun, differences_of, logits, report


def differences(small: SmallRun, _folder: Path) -> dict[str, float]:
    earlier = LanguageModel(small.model, tokenizer=small.tokenizer)

    def traced(use: str) -> Tensor:
        """Logits of the prompt, read in a trace of a model that was wrapped before its edits, or with the layer."""
        wrapped = LanguageModel(small.model, tokenizer=small.tokenizer) if use == "attach" else earlier
        with wrapped.trace({"input_ids": IDS}):
            read = wrapped.output.logits.save()
        result: Tensor = read
        return result

    return differences_of(small, small.model, traced, logits)


report("nnsight", differences)
