"""Revival: re-initialise dead experts on tokens with a high error.

Shapes: T tokens, I input width, O output width, N experts, D dead experts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from mxd.trainer.layers.base import LayerOutput, SparseLayer
from mxd.trainer.layers.gates import FlatGate
from mxd.trainer.layers.mxd import MxD

OUTPUT_SCALE = 0.2
"""Norm of a revived expert's row, relative to the mean norm of the others."""
SCORE_MARGIN = 1.1
"""Score of a revived expert on its token, relative to the smallest gate activation there."""


@torch.no_grad()
def revive(
    layer: SparseLayer,
    optimizer: torch.optim.Optimizer,
    is_dead_N: Tensor,
    x_TI: Tensor,
    output: LayerOutput,
    target_TO: Tensor,
) -> None:
    """Re-initialise dead experts in place, at most half as many as the batch has tokens."""
    dead_D = is_dead_N.nonzero()[: len(x_TI) // 2, 0]
    is_alive_N = ~is_dead_N
    if len(dead_D) == 0 or not bool(is_alive_N.any()):
        return
    table_NO = layer.table
    residual_TO = target_TO - output.output_TO
    errors_T = residual_TO.square().sum(dim=1) / target_TO.square().sum(dim=1).clamp_min(1e-12)
    token_D = errors_T.topk(len(dead_D)).indices
    assert isinstance(layer.gate, FlatGate)
    gate_norm = layer.gate.weight[is_alive_N].norm(dim=1).mean()
    rows_DI = F.normalize(x_TI[token_D] - x_TI.mean(dim=0), dim=1) * gate_norm
    layer.gate.weight[dead_D] = rows_DI
    score_D = SCORE_MARGIN * output.routing.coefficients_TK[token_D, -1]
    layer.gate.bias[dead_D] = score_D - (rows_DI * x_TI[token_D]).sum(dim=1)
    target_DO = residual_TO[token_D]
    if isinstance(layer, MxD):  # c_n is multiplied with z D, so it needs the sign of the ratio
        target_DO = target_DO * layer.dense_output(x_TI[token_D]).sign()
    table_NO[dead_D] = F.normalize(target_DO, dim=1) * OUTPUT_SCALE * table_NO[is_alive_N].norm(dim=1).mean()
    _reset_moments(optimizer, (layer.gate.weight, layer.gate.bias, table_NO), dead_D)


def _reset_moments(optimizer: torch.optim.Optimizer, parameters: tuple[Tensor, ...], dead_D: Tensor) -> None:
    """Reset some rows: first moment zero, second moment that of a typical row."""
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if state:
            state["exp_avg"][dead_D] = 0
            state["exp_avg_sq"][dead_D] = state["exp_avg_sq"].mean()
