"""Experts that have not been active for long begin again, as the tokens that the layer answers worst.

Such an expert's gate is pointed at the token's input, so that it would just be among the K there, and what it writes at
what the layer's answer lacks there. Its optimiser begins again too.

Shapes: T tokens, I input width, O output width, N experts, D revived experts.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.layers.gates import FlatGate
from trainer.layers.mxd import MxD
from trainer.layers.sparse import LayerOutput, SparseLayer

STRENGTH = 0.2
"""Length of what a revived expert writes, in units of the mean length of the others'."""
MARGIN = 1.1
"""Its score on its token, in units of the smallest coefficient there."""


@torch.no_grad()
def revive(
    layer: SparseLayer,
    optimizer: torch.optim.Optimizer,
    dead_N: Tensor,
    x_TI: Tensor,
    output: LayerOutput,
    target_TO: Tensor,
) -> None:
    """Let the experts of ``dead_N`` begin again on a batch; at most half as many as it has tokens."""
    dead_D = dead_N.nonzero()[: len(x_TI) // 2, 0]
    alive_N = ~dead_N
    if len(dead_D) == 0 or not bool(alive_N.any()):
        return
    table_NO = layer.table
    lacking_TO = target_TO - output.output_TO
    errors_T = lacking_TO.square().sum(dim=1) / target_TO.square().sum(dim=1).clamp_min(1e-12)
    token_D = errors_T.topk(len(dead_D)).indices
    assert isinstance(layer.gate, FlatGate)
    gate_norm = layer.gate.weight[alive_N].norm(dim=1).mean()
    rows_DI = F.normalize(x_TI[token_D] - x_TI.mean(dim=0), dim=1) * gate_norm
    layer.gate.weight[dead_D] = rows_DI
    score_D = MARGIN * output.routing.coefficients_TK[token_D, -1]
    layer.gate.bias[dead_D] = score_D - (rows_DI * x_TI[token_D]).sum(dim=1)
    wanted_DO = lacking_TO[token_D]
    if isinstance(layer, MxD):  # the scaling that gives what is lacking has the sign of its ratio to zD
        wanted_DO = wanted_DO * layer.dense_output(x_TI[token_D]).sign()
    table_NO[dead_D] = F.normalize(wanted_DO, dim=1) * STRENGTH * table_NO[alive_N].norm(dim=1).mean()
    _forget(optimizer, (layer.gate.weight, layer.gate.bias, table_NO), dead_D)


def _forget(optimizer: torch.optim.Optimizer, parameters: tuple[Tensor, ...], dead_D: Tensor) -> None:
    """Begin the moments of some rows again: no momentum, and the second moment of a typical row."""
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if state:
            state["exp_avg"][dead_D] = 0
            state["exp_avg_sq"][dead_D] = state["exp_avg_sq"].mean()
