"""Interventions on MLPs' outputs, measured together in forward passes that start at the first changed block.

Shapes: A interventions, S sequences, B sequences and R rows of a forward pass, L or T tokens of a sequence. I input
width, O output width, W width of the residual stream, K active, M entries of the mixing vector, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mxd.trainer.evaluation.health import SharedExperts
from mxd.trainer.evaluation.metrics import EvaluatedText, LayerStatistics
from mxd.trainer.language_model.edited_mlp import LayerPass
from mxd.trainer.language_model.mlp_hooks import Mlp, MlpFunction
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.residuals import Residuals, residual_at, start_at
from mxd.trainer.layers.base import Routing, SparseLayer
from mxd.trainer.utils.bootstrap import Floats

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


def layer_outputs(
    sparse_layer: SparseLayer, statistics: LayerStatistics, shared: SharedExperts | None = None
) -> dict[str, OutputFunction]:
    """Return the output functions of a sparse layer by name. They share its pass over a sequence, and those that do not
    apply to the layer are left out.

    - replaced: output of the layer.
    - frozen: mixing vector frozen at its median: aC of an MxD, aW_dec of a transcoder.
    - constant: the constant mixing that fits the MLP best.
    - constant_dense: dense output frozen at its median, so that each expert adds a fixed direction.
    - without_shared, only_shared: the always-on experts ablated, or all others.
    """
    device, best = sparse_layer.table.device, statistics.best_constant
    mixing_M, dense_M = statistics.typical_mixing_M.to(device), statistics.typical_dense_M.to(device)
    shared_E = torch.tensor(list(shared.experts if shared and shared.always_on else ()), device=device)
    last: list[LayerPass] = []

    def masked(layer_pass: LayerPass, is_kept: Callable[[Tensor], Tensor]) -> Tensor:
        activations_TK, indices_TK = layer_pass.routing
        mask_TK = is_kept(torch.isin(indices_TK, shared_E))
        return sparse_layer.decode(layer_pass.dense_PM, Routing(activations_TK * mask_TK, indices_TK))

    outputs: dict[str, Callable[[LayerPass], Tensor]] = {
        "replaced": lambda it: it.output_PO,
        "frozen": lambda it: sparse_layer.decode_mixed(it.dense_PM, mixing_M.expand(len(it.dense_PM), -1)),
    }
    if best is not None:
        outputs["constant"] = lambda it: best.output(sparse_layer, it.dense_PM)
    if len(dense_M):
        outputs["constant_dense"] = lambda it: sparse_layer.decode_mixed(
            dense_M.expand(len(it.mixing_PM), -1), it.mixing_PM
        )
    if len(shared_E):
        outputs["without_shared"] = lambda it: masked(it, lambda is_shared_TK: ~is_shared_TK)
        outputs["only_shared"] = lambda it: masked(it, lambda is_shared_TK: is_shared_TK)

    def output(compute: Callable[[LayerPass], Tensor], x_TI: Tensor, output_TO: Tensor) -> Tensor:
        input_TI = output_TO if sparse_layer.reads == "mlp-output" else x_TI
        if not last or last[0].x_STI is not input_TI:
            last[:] = [LayerPass(sparse_layer, input_TI)]
        return compute(last[0])

    return {name: partial(output, compute) for name, compute in outputs.items()}


class Losses(NamedTuple):
    """Metrics of each intervention on each sequence, [A, S]. The first intervention is the original."""

    ce: Floats
    """Mean next-token loss, in nats per token."""
    kl: Floats
    """Mean KL divergence of the next-token distribution from the original one, in nats per token."""
    agreement: Floats
    """Share of tokens with the same most probable next token as the original."""


LOGIT_BYTES = 1 << 30
"""Memory for the logits of a forward pass on a GPU, which decides how many sequences it takes."""


@torch.no_grad()
def measure_losses(text: EvaluatedText, interventions: Sequence[Intervention]) -> Losses:
    """Run the language model on a text under each intervention. The first one must be the original."""
    assert not interventions[0]
    changed, language_model, ids_SL, residuals = interventions[1:], text.language_model, text.ids_SL, text.residuals
    layers = {layer for intervention in changed for layer in intervention}
    first_layer = min(layers)
    functions = {layer: _mlp_function(changed, layer, layer == first_layer) for layer in layers}
    step = _sequences_per_pass(language_model, len(changed), ids_SL.shape[1])
    metrics: list[Tensor] = []
    for first in range(0, len(ids_SL), step):
        text.callbacks.check_cancelled("Evaluation cancelled; run the same command to continue.")
        ids_BL = ids_SL[first : first + step].to(language_model.device)
        original_BLV = _original_logits(language_model, residuals, first_layer, first, ids_BL)
        can_split = len(ids_BL) == 1 and language_model.can_split_row(first_layer)
        with (
            residuals.continued(first_layer, first, ids_BL, 1 if can_split else len(changed)) as ids_RL,
            language_model.replace_mlps(functions),
        ):
            logits_RLV = language_model.logits(ids_RL)
        changed_BALV = logits_RLV.unflatten(0, (len(ids_BL), len(changed)))
        for ids_L, original_LV, logits_ALV in zip(ids_BL, original_BLV, changed_BALV, strict=True):
            metrics.append(_compare(original_LV, logits_ALV, ids_L).cpu())
        done = (first + len(ids_BL)) * ids_SL.shape[1]
        text.callbacks.on_progress(done, ids_SL.numel(), f"{len(interventions)} interventions")
    return Losses(*(values.numpy() for values in torch.stack(metrics, dim=2).double()))


def _sequences_per_pass(language_model: LanguageModel, interventions: int, length: int) -> int:
    """On a CPU one sequence fills the cores; a GPU takes as many as there is memory for their logits."""
    if language_model.device.type == "cpu":
        return 1
    vocabulary: int = language_model.config.vocab_size
    return max(1, LOGIT_BYTES // (4 * interventions * length * vocabulary))


def _original_logits(
    language_model: LanguageModel, residuals: Residuals, layer: int, first: int, ids_BL: Tensor
) -> Tensor:
    """Logits [B, L, V] of the original model; the blocks are computed once per text, for whatever interventions."""
    end = residuals.behind_all
    if not residuals.can_continue(end):
        return language_model.logits(ids_BL)
    if not residuals.has(end, first, len(ids_BL)):
        with residuals.continued(layer, first, ids_BL) as ids_RL:
            residuals.store(end, first, final_BLW := residual_at(language_model, end, ids_RL))
        with start_at(language_model.architecture.blocks, end, final_BLW):
            return language_model.logits(ids_BL)
    with residuals.continued(end, first, ids_BL) as ids_RL:
        return language_model.logits(ids_RL)


def _compare(original_LV: Tensor, logits_ALV: Tensor, ids_L: Tensor) -> Tensor:
    """Loss, KL divergence and agreement of the original and each intervention, [3, 1 + A]. One by one, for memory."""
    original_LV, next_L1 = original_LV[:-1], ids_L[1:, None]
    total_L, top_L = original_LV.logsumexp(-1), original_LV.argmax(-1)
    p_LV = (original_LV - total_L[:, None]).exp_()
    losses = [(total_L - original_LV.gather(1, next_L1)[:, 0]).mean()]
    divergences, agreements = [torch.zeros_like(losses[0])], [torch.ones_like(losses[0])]
    for logits_LV in logits_ALV[:, :-1]:
        changed_L = logits_LV.logsumexp(-1)
        losses.append((changed_L - logits_LV.gather(1, next_L1)[:, 0]).mean())
        # KL = sum p (log p - log q); the two logarithms differ by the logits and by their normalisations.
        differences_L = torch.linalg.vecdot(p_LV, original_LV - logits_LV)
        divergences.append((differences_L - total_L + changed_L).mean().clamp_min(0))
        agreements.append((logits_LV.argmax(-1) == top_L).float().mean())
    return torch.stack([torch.stack(values) for values in (losses, divergences, agreements)])


def _mlp_function(interventions: Sequence[Intervention], layer: int, is_first: bool) -> MlpFunction:
    """MLP function with one row per sequence and intervention.

    At the first changed layer, the rows of a sequence are still equal: the interventions share the tensors of its first
    row, and there may be only one row.
    """
    count = len(interventions)

    def function(x_RTI: Tensor, mlp: Mlp) -> Tensor:
        output_RTO = mlp()
        inputs, outputs = list(x_RTI.float()), list(output_RTO.float())
        if is_first:
            starts = [0] if len(inputs) == 1 else range(0, len(inputs), count)
            inputs, outputs = ([rows[start] for start in starts for _ in range(count)] for rows in (inputs, outputs))
        changes = [change.get(layer) for change in interventions] * (len(inputs) // count)
        rows = zip(changes, inputs, outputs, strict=True)
        changed = [y_TO if change is None else change(x_TI, y_TO) for change, x_TI, y_TO in rows]
        return torch.stack(changed).to(output_RTO.dtype)

    return function


def loss_increases(losses: Losses, number: int) -> Floats:
    """Loss increase of each sequence under an intervention, [S]."""
    increase_S: Floats = losses.ce[number] - losses.ce[0]
    return increase_S
