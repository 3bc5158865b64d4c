"""Interventions on MLPs' outputs, measured together in one forward pass that shares all blocks before the first one.

Shapes: A interventions, S sequences, T tokens of a sequence, I input width, O output width, K active, M entries of the
mixing vector, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mxd.trainer.evaluation.metrics import LayerStatistics
from mxd.trainer.language_model.mlp_hooks import Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.bootstrap import Floats
from mxd.trainer.utils.callbacks import Callbacks

OutputFunction = Callable[[Tensor, Tensor], Tensor]
"""Maps an MLP's input [T, I] and output [T, O] to a new output [T, O]."""

Intervention = Mapping[int, OutputFunction]
"""Output functions of the changed layers. All other layers keep their MLPs."""

ORIGINAL: Intervention = {}


def zero_output(_x_TI: Tensor, output_TO: Tensor) -> Tensor:
    """Replace the output by zeros."""
    return torch.zeros_like(output_TO)


def constant_output(mean_O: Tensor) -> OutputFunction:
    """Replace the output by a constant, for mean ablation."""
    return lambda _x_TI, output_TO: mean_O.to(output_TO).expand_as(output_TO)


def intervene(run: Run, function: OutputFunction) -> Intervention:
    """Intervention on the layer of a run."""
    return {run.config.layer: function}


class LayerInterventions:
    """Output functions of one sparse layer, which share its dense output and routing."""

    def __init__(self, sparse_layer: SparseLayer, statistics: LayerStatistics, shared: Sequence[int]) -> None:
        self.sparse_layer = sparse_layer
        device = sparse_layer.table.device
        self._mixing_M = statistics.mixing_M.to(device)
        self._shared_E = torch.tensor(list(shared), device=device)
        self._cached: tuple[Tensor, Tensor, Routing] | None = None

    def replaced(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """Output of the layer."""
        return self.sparse_layer.decode(*self._dense_and_routing(x_TI, output_TO))

    def frozen(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """Output of the layer with its mixing vector mean-ablated: aC of an MxD, aW_dec of a transcoder."""
        dense_TM, _ = self._dense_and_routing(x_TI, output_TO)
        return self.sparse_layer.decode_mixed(dense_TM, self._mixing_M.expand(len(dense_TM), -1))

    def without_shared(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """Output of the layer with its shared experts ablated."""
        return self._masked(x_TI, output_TO, lambda is_shared_TK: ~is_shared_TK)

    def only_shared(self, x_TI: Tensor, output_TO: Tensor) -> Tensor:
        """Output of the layer with all experts except the shared ones ablated."""
        return self._masked(x_TI, output_TO, lambda is_shared_TK: is_shared_TK)

    def _masked(self, x_TI: Tensor, output_TO: Tensor, mask: Callable[[Tensor], Tensor]) -> Tensor:
        dense_TM, (coefficients_TK, indices_TK) = self._dense_and_routing(x_TI, output_TO)
        mask_TK = mask(torch.isin(indices_TK, self._shared_E))
        return self.sparse_layer.decode(dense_TM, Routing(coefficients_TK * mask_TK, indices_TK))

    def _dense_and_routing(self, x_TI: Tensor, output_TO: Tensor) -> tuple[Tensor, Routing]:
        """Dense output and routing of a sequence, computed once per sequence."""
        input_TI = output_TO if self.sparse_layer.reads == "mlp-output" else x_TI
        if self._cached is None or self._cached[0] is not input_TI:
            self._cached = input_TI, self.sparse_layer.dense_output(input_TI), self.sparse_layer.route(input_TI)
        return self._cached[1:]


@dataclass(frozen=True)
class Losses:
    """Metrics of each intervention on each sequence, [A, S]. The first intervention is the original."""

    ce: Floats
    """Mean next-token loss, in nats per token."""
    kl: Floats
    """Mean KL divergence of the next-token distribution from the original one, in nats per token."""
    agreement: Floats
    """Share of tokens with the same most probable next token as the original."""


@torch.no_grad()
def measure_losses(
    language_model: LanguageModel, interventions: Sequence[Intervention], ids_SL: Tensor, callbacks: Callbacks
) -> Losses:
    """Run the language model on sequences under each intervention. The first one must be the original.

    Raises:
        CancelledError: the task was cancelled.
    """
    assert not interventions[0]
    first_layer = min(layer for intervention in interventions for layer in intervention)
    rows = 1 if language_model.can_split_row(first_layer) else len(interventions)
    metrics: list[Tensor] = []
    with language_model.replace_mlps(_mlp_functions(interventions)):
        for number, ids_L in enumerate(ids_SL):
            callbacks.check_cancelled("Evaluation cancelled; run the same command to continue.")
            logits_ALV = language_model.logits(ids_L.expand(rows, -1))
            metrics.append(_compare(logits_ALV, ids_L.to(logits_ALV.device)).cpu())
            detail = f"{len(interventions)} interventions"
            callbacks.on_progress((number + 1) * len(ids_L), ids_SL.numel(), detail)
    return Losses(*(values.numpy() for values in torch.stack(metrics, dim=2).double()))


def _compare(logits_ALV: Tensor, ids_L: Tensor) -> Tensor:
    """Loss, KL divergence and agreement of each intervention, [3, A]. Computed row by row to save memory."""
    original_LV = logits_ALV[0, :-1].log_softmax(-1)
    top_L = original_LV.argmax(-1)
    rows = []
    for logits_LV in logits_ALV[:, :-1]:
        log_p_LV = logits_LV.log_softmax(-1)
        ce = -log_p_LV.gather(1, ids_L[1:, None]).mean()
        kl = (original_LV.exp() * (original_LV - log_p_LV)).sum(-1).mean().clamp_min(0)
        rows.append(torch.stack([ce, kl, (log_p_LV.argmax(-1) == top_L).float().mean()]))
    return torch.stack(rows, dim=1)


def _mlp_functions(interventions: Sequence[Intervention]) -> dict[int, MlpFunction]:
    layers = {layer for intervention in interventions for layer in intervention}
    return {layer: _mlp_function(interventions, layer) for layer in layers}


def _mlp_function(interventions: Sequence[Intervention], layer: int) -> MlpFunction:
    """MLP function with one row per intervention. A single input row is shared by all interventions."""

    def function(x_RTI: Tensor, mlp: Mlp) -> Tensor:
        output_RTO = mlp()
        inputs, outputs = list(x_RTI.float()), list(output_RTO.float())
        if len(inputs) == 1:
            inputs, outputs = inputs * len(interventions), outputs * len(interventions)
        rows = zip(interventions, inputs, outputs, strict=True)
        changed = [change[layer](x_TI, y_TO) if layer in change else y_TO for change, x_TI, y_TO in rows]
        return torch.stack(changed).to(output_RTO.dtype)

    return function


def loss_increases(losses: Losses, number: int) -> Floats:
    """Loss increase of each sequence under an intervention, [S]."""
    increase_S: Floats = losses.ce[number] - losses.ce[0]
    return increase_S
