"""Faithfulness of runs measured on the outputs of their MLP instead of the loss, on tokens of an activation cache.

    python -m scripts.output_shares RUN… --cache FOLDER --buffer 4 --tokens 8192 > outputs.jsonl

The buffer must lie behind the tokens that the runs were trained on. Prints one line per run: the normalised MSE of each
sequence, with the mixing frozen at the best constant, with the dense output frozen at its median, and of the mean
output. The same is measured on Gaussian inputs with the moments of the text's. MxDs also have the similarity of each
expert's matrix to the original decoder. Without forward passes of the language model, it takes seconds per run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from mxd.trainer.data.activation_cache import ActivationCache
from mxd.trainer.evaluation.metrics import constant_mixing_fit
from mxd.trainer.experimental.training import GaussianInputs
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.layers.mxd import SMALLEST_NORM, MxD, SparseLayer, active_counts, spatial_median
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_sets import code, weights_digest

MEDIAN_TOKENS, MEDIAN_STEPS = 8192, 20
"""As in evaluations."""


@torch.no_grad()
def main() -> None:
    """Measure the runs and print JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--cache", required=True, type=Path)
    parser.add_argument("--buffer", required=True, type=int)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--data", type=Path, default=Path("data"))
    words = parser.parse_args()
    runs = [Run.load(name, words.data) for name in words.runs]
    cache = ActivationCache.open(words.cache, torch.device("cpu"))
    if any((words.buffer + 1) * cache.manifest.buffer_tokens <= run.config.tokens for run in runs):
        parser.error(f"the runs were trained on buffer {words.buffer}")
    language_model = LanguageModel.load(runs[0].language_model_source, "cpu")
    samples: dict[int, Sample] = {}
    for run in runs:
        if run.config.layer not in samples:
            samples[run.config.layer] = Sample.read(cache, run.config.layer, words.buffer, words.tokens, language_model)
        print(json.dumps(measure(run, samples[run.config.layer])), flush=True)


@dataclass(frozen=True)
class Sample:
    """Inputs and outputs of a layer's MLP on which its runs are measured."""

    text: MlpActivations
    gaussian: MlpActivations
    """Inputs with the moments of the text's."""
    context_length: int
    decoder_OH: Tensor
    """Output weights of the MLP."""

    @classmethod
    def read(cls, cache: ActivationCache, layer: int, buffer: int, tokens: int, language_model: LanguageModel) -> Self:
        """Read the first tokens of a buffer, and draw half as many Gaussian inputs."""
        text = MlpActivations(*(values[:tokens] for values in cache.activations(layer, buffer)))
        gaussian = GaussianInputs.like(text.input_TI, language_model, layer).sample(tokens // 2, seed=1, step=0)
        length = cache.manifest.text.context_length
        return cls(text, gaussian, length, language_model.architecture.decoder_weight(layer))


def measure(run: Run, sample: Sample) -> dict[str, Any]:
    """All measurements of a run."""
    result: dict[str, Any] = {"run": run.name, "layer": run.config.layer, "weights": weights_digest([run]), **code()}
    result |= errors(run.layer, sample.text, sample.context_length)
    result["gaussian"] = errors(run.layer, sample.gaussian, sample.context_length)
    if isinstance(run.layer, MxD):
        result["decoder_cosine"] = decoder_cosines(run.layer, sample.decoder_OH)
    return result


def errors(layer: SparseLayer, text: MlpActivations, length: int) -> dict[str, Any]:
    """Normalised MSE of each sequence by what is frozen, and the share of dead experts."""
    x_TI, y_TO = text.inputs_for(layer), text.output_TO
    routing, dense_TM = layer.route(x_TI), layer.dense_output(x_TI)
    mixing_TM = layer.mixing(routing)
    weight_T1 = 1 / y_TO.square().sum(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)
    outputs = {
        "replaced": layer.decode_mixed(dense_TM, mixing_TM),
        "mean": ((weight_T1 * y_TO).sum(dim=0) / weight_T1.sum()).expand_as(y_TO),
    }
    fit = constant_mixing_fit(layer)
    if fit is not None:
        fit.add(dense_TM, y_TO)
        outputs["constant"] = fit.best().output(layer, dense_TM)
    if dense_TM.shape[1]:
        sample_TM = dense_TM[:MEDIAN_TOKENS]
        typical_M = spatial_median(sample_TM, sample_TM.mean(dim=0), steps=MEDIAN_STEPS)
        outputs["constant_dense"] = layer.decode_mixed(typical_M.expand_as(dense_TM), mixing_TM)
    per_sequence = {name: sequence_errors(output_TO, y_TO, length) for name, output_TO in outputs.items()}
    dead = (active_counts(routing, layer.config.num_experts) == 0).float().mean()
    return {"normalized_mse": per_sequence, "dead_share": float(dead)}


def sequence_errors(output_TO: Tensor, target_TO: Tensor, length: int) -> list[float]:
    """Normalised MSE of each sequence."""
    error_T = (output_TO - target_TO).square().sum(dim=1) / target_TO.square().sum(dim=1).clamp_min(SMALLEST_NORM)
    return [round(value, 6) for value in error_T.reshape(-1, length).mean(dim=1).tolist()]


def decoder_cosines(layer: MxD, original_OH: Tensor) -> dict[str, float]:
    """Cosines of the experts' matrices D diag(c_n) and the original decoder, as vectors: median and largest size."""
    own_OH, original_OH = layer.decoder.weight.float(), original_OH.float()
    product_O, square_O = (own_OH * original_OH).sum(dim=1), own_OH.square().sum(dim=1)
    table_NO = layer.scaling_NO.float()
    norms_N = (table_NO.square() @ square_O).sqrt() * original_OH.norm()
    cosine_N = (table_NO @ product_O / norms_N.clamp_min(SMALLEST_NORM)).abs()
    return {"median": float(cosine_N.median()), "largest": float(cosine_N.max())}


if __name__ == "__main__":
    main()
