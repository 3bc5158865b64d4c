"""Activations on the last token of each text: of experts, of MLP neurons, and of a random gate.

Shapes: R texts, F features, T tokens, I input width, O output width, H hidden width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor

from mxd.trainer.evaluation.probing.examples import random_gate_weights, recorded_inputs, to_dense
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.tokenizer import start_token_id
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.layers.ops import gate
from mxd.trainer.utils.callbacks import Callbacks

TOKENS_PER_BATCH = 2048


@dataclass(frozen=True)
class LastTokens:
    """Activations of one layer's MLP on the last token of each text."""

    mlp: MlpActivations
    """Inputs [R, I] and outputs [R, O]."""
    neuron_RH: Tensor
    """Input of the down projection."""

    @torch.no_grad()
    def experts(self, sparse_layer: SparseLayer) -> Tensor:
        """Activations [R, N] of all experts."""
        routing = sparse_layer.route(self.mlp.inputs_for(sparse_layer))
        return to_dense(routing.coefficients_TK, routing.indices_TK, sparse_layer.config.num_experts).cpu()

    @torch.no_grad()
    def random_gate(self, sparse_layer: SparseLayer, seed: int) -> Tensor:
        """Activations [R, N] of an untrained gate with the layer's N and K."""
        weight_NI, bias_N = random_gate_weights(sparse_layer, seed)
        k = min(sparse_layer.config.k, len(bias_N))
        return to_dense(*gate(self.mlp.input_TI, weight_NI, bias_N, k), len(bias_N)).cpu()


@torch.no_grad()
def last_tokens(
    texts: Sequence[str],
    layers: Sequence[int],
    language_model: LanguageModel,
    tokens: int,
    start_token: str | None,
    callbacks: Callbacks,
) -> dict[int, LastTokens]:
    """Capture several layers in one forward pass per text, which reads the start token and the last ``tokens``.

    Raises:
        CancelledError: the task was cancelled.
    """
    rows = _token_ids(texts, language_model, tokens, start_token)
    order, parts = sorted(range(len(rows)), key=lambda row: len(rows[row])), []
    for batch in _batches(order, rows):
        callbacks.check_cancelled("Stopped. The finished data sets are kept; run the same command to continue.")
        parts.append(_capture([rows[row] for row in batch], layers, language_model))
    position_R = torch.tensor(order).argsort()
    return {layer: _joined([part[layer] for part in parts], position_R) for layer in layers}


def _token_ids(
    texts: Sequence[str], language_model: LanguageModel, tokens: int, start_token: str | None
) -> list[list[int]]:
    start = start_token_id(language_model.tokenizer, start_token)
    count = min(tokens, language_model.max_tokens - 1)
    encoded = language_model.tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [[start, *ids[-count:]] for ids in encoded]


def _batches(order: Sequence[int], rows: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    batch: list[int] = []
    for row in order:
        if batch and len(rows[row]) * (len(batch) + 1) > TOKENS_PER_BATCH:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def _capture(rows: Sequence[Sequence[int]], layers: Sequence[int], model: LanguageModel) -> dict[int, LastTokens]:
    """Capture a batch. Padding follows the texts, so a causal language model does not see it."""
    width = max(map(len, rows))
    ids_BT = torch.tensor([[*row, *[row[0]] * (width - len(row))] for row in rows])
    last_B = torch.tensor([index * width + len(row) - 1 for index, row in enumerate(rows)])
    hidden: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    with ExitStack() as stack:
        for layer in layers:
            stack.enter_context(recorded_inputs(model.down_projection(layer), hidden[layer].append))
        captured = model.capture_layers(layers, ids_BT)
    return {layer: _last(captured[layer], hidden[layer][0], last_B) for layer in layers}


def _last(activations: MlpActivations, hidden: Tensor, last_B: Tensor) -> LastTokens:
    rows = activations.rows(last_B)
    neuron_TH = hidden.reshape(-1, hidden.shape[-1])
    mlp = MlpActivations(rows.input_TI.float(), rows.output_TO.float())
    return LastTokens(mlp, neuron_TH[last_B.to(neuron_TH.device)].float().cpu())


def _joined(parts: Sequence[LastTokens], position_R: Tensor) -> LastTokens:
    def join(values: list[Tensor]) -> Tensor:
        return torch.cat(values)[position_R.to(values[0].device)]

    inputs, outputs = (join([part.mlp[index] for part in parts]) for index in range(2))
    return LastTokens(MlpActivations(inputs, outputs), join([part.neuron_RH for part in parts]))
