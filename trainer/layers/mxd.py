"""Mixture of Decoders (arXiv 2505.21364, section 3): an MLP as N full-rank linear experts.

    z = act(x E + b_e)                          encoder of an MLP
    z = act(x E_g + b_g) * (x E + b_e)          encoder of a GLU
    a = TopK(relu(x G + b_gate))                gate: non-negative, not renormalised
    y = (a C) * (z D) + b_out                   Hadamard-factorised decoder
    y = (a C - m) * (z D) + b_out               the same with centred mixing

Expert n is the linear map W_n = D diag(c_n) from z to the output, and y = sum_n a_n z W_n + b_out (Lemma 2). W_n has
the rank of D as long as no entry of c_n is zero (Lemma 1).

The paper's form has an almost perfect solution without routing: experts that are active everywhere, so that a C is
nearly constant, and D the original MLP's. Centred mixing, which is ours, excludes it: m is the spatial median of a C
over the training tokens, so a layer with constant routing outputs only b_out.

Shapes: T tokens, I input width, H hidden width, O output width, M mixing width (here O), N experts, K active experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config import Activation, LayerConfig, Method
from mxd.trainer.config.layer import method_traits
from mxd.trainer.layers.base import Routing, SparseLayer, drawn_bias, drawn_weight
from mxd.trainer.layers.ops import PAIRS_AT_A_TIME
from mxd.trainer.layers.sharding import Shards
from mxd.trainer.utils.distributed import SINGLE_PROCESS

Average = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda value: F.gelu(value, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "sigmoid": torch.sigmoid,
}
SMALLEST_DISTANCE = 0.1
"""Smallest distance of a row to the centre, relative to their norms, so that no row outweighs the others."""
CENTRE_DECAY = 0.99
"""Weight of the earlier steps in the running centre of the mixing."""
TINY = 1e-20
"""Weight of the first guess, which stays if every row is equal to it."""


class MxD(SparseLayer):
    """Mixture of Decoders."""

    method: ClassVar[Method] = "mxd"
    expert_tables: ClassVar[tuple[str, ...]] = ("gate.weight", "gate.bias", "scaling_NO")
    mixing_centre_M: Tensor
    """Centre of a C over the training tokens, [M]; only with centred mixing."""
    average: Average | None = None
    """Average over the processes of a training step. None outside training."""

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        self.encoder = nn.Linear(config.input_width, config.hidden_width)
        self.decoder = nn.Linear(config.hidden_width, config.output_width, bias=False)
        # Initialised as torch's Linear from N experts to M entries, stored with one row c_n per expert.
        sizes = config.num_experts, self.mixing_width
        weight_MN = drawn_weight(*sizes, columns=self.own_experts)
        drawn_bias(*sizes)  # unused, but the encoder's random numbers depend on it
        self.scaling_NO = nn.Parameter(weight_MN.T.contiguous())
        self.output_bias = nn.Parameter(torch.zeros(config.output_width))
        nn.init.zeros_(self.decoder.weight)
        if config.mixing == "centred":
            self.register_buffer("mixing_centre_M", torch.zeros(self.mixing_width))
        self.activation = ACTIVATIONS[config.activation]
        is_gated = config.encoder == "glu" and not method_traits(self.method).mixes_hidden
        self.encoder_gate = nn.Linear(config.input_width, config.hidden_width) if is_gated else None

    def encode(self, x_TI: Tensor) -> Tensor:
        """Hidden vector z that all experts read, [T, H]."""
        hidden_TH: Tensor = self.encoder(x_TI)
        if self.encoder_gate is None:
            return self.activation(hidden_TH)
        return self.activation(self.encoder_gate(x_TI)) * hidden_TH

    @property
    def mixing_width(self) -> int:
        """Width M of a C; the output width, unless a subclass mixes elsewhere."""
        return self.config.output_width

    @property
    def table(self) -> Tensor:
        return self.scaling_NO

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """z D, [T, O], which the experts scale."""
        output: Tensor = self.decoder(self.encode(x_TI))
        return output

    def mixing(self, routing: Routing) -> Tensor:
        """a C, [T, O], which scales z D."""
        return self.mix(routing, self.scaling_NO)

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        return self.centred(mixing_TM) * dense_TM + self.output_bias

    def centred(self, mixing_TM: Tensor) -> Tensor:
        """Subtract the centre from a mixing, if the layer has centred mixing. In training it is the batch's own centre.
        A running one would lag behind, and training would make use of the difference as a constant mixing."""
        if self.config.mixing == "paper":
            return mixing_TM
        if self.average is None:
            return mixing_TM - self.mixing_centre_M
        return mixing_TM - spatial_median(mixing_TM, self.mixing_centre_M, self.average)

    @torch.no_grad()
    def follow(self, mixing_TM: Tensor, weight: Tensor | float, average: Average = SINGLE_PROCESS.average) -> None:
        """Move the running centre towards the spatial median of a step's mixing, if the layer has centred mixing.
        ``average`` is over the processes that share the step, and ``weight`` its ``centre_weight``."""
        if self.config.mixing == "centred":
            self.mixing_centre_M.lerp_(spatial_median(mixing_TM, self.mixing_centre_M, average), weight)

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        return self.mixing(routing) * dense_TM

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        # In chunks of tokens, so that no [T, K, O] tensor is built.
        tokens = max(1, PAIRS_AT_A_TIME // routing.indices_TK.shape[1])
        chunks = zip(dense_TM.split(tokens), routing.indices_TK.split(tokens), strict=True)
        norms = [torch.linalg.vector_norm(self.scaling_NO[ids] * dense.unsqueeze(1), dim=2) for dense, ids in chunks]
        return torch.cat(norms) * routing.activations_TK.abs()

    def expert_matrix(self, expert: int) -> Tensor:
        """W_n = D diag(c_n), [H, O]; the expert's output is z W_n."""
        return self.decoder.weight.T * self.scaling_NO[expert]


def centre_weight(step: int) -> float:
    """Weight of a step, counted from 0, in the running centre, which at first is the mean over all steps."""
    return max(1 - CENTRE_DECAY, 1 / (step + 1))


def spatial_median(
    values_TM: Tensor, start_M: Tensor, average: Average = SINGLE_PROCESS.average, steps: int = 1
) -> Tensor:
    """Point with the smallest mean distance to the rows, [M], by Weiszfeld's iteration from ``start_M``.

    Each row counts by its direction only. In a mean, the first tokens of sequences with their massive activations
    outweigh all other tokens, so that subtracting it gives those a constant mixing. Gradients flow through the rows,
    not through their weights. ``average`` is over the processes, of which each has equally many rows; with gradient.
    """
    centre_M = start_M
    for _ in range(steps):
        weights_T1 = _weights(values_TM, centre_M)
        totals = average(torch.cat([(weights_T1 * values_TM).mean(dim=0), weights_T1.mean(dim=0)]))
        centre_M = (totals[:-1] + TINY * centre_M) / (totals[-1] + TINY)
    return centre_M


@torch.no_grad()
def _weights(values_TM: Tensor, centre_M: Tensor) -> Tensor:
    """Inverse distance of each row to the centre, [T, 1]; 0 for a row at the centre, which has no direction."""
    norms_T1 = torch.linalg.vector_norm(values_TM, dim=1, keepdim=True)
    distances_T1 = torch.linalg.vector_norm(values_TM - centre_M, dim=1, keepdim=True)
    smallest_T1 = SMALLEST_DISTANCE * (norms_T1 + torch.linalg.vector_norm(centre_M))
    return torch.where(distances_T1 > 0, 1 / torch.maximum(distances_T1, smallest_T1), 0)
