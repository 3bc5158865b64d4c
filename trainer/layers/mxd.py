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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.layer import Activation, LayerConfig, Method, method_traits
from mxd.trainer.layers.base import Routing, SparseLayer, drawn_bias, drawn_weight, normalized_mse
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


@dataclass(frozen=True)
class ExpertRanks:
    """Ranks of the matrices W_n of a sample of experts."""

    normalized_rank: float
    """Mean of rank / min(H, O)."""
    stable_rank: float
    """Mean of ‖W‖²_F / ‖W‖²₂."""
    min_singular_value: float
    """Smallest singular value over the sample, relative to the largest of the same expert."""
    min_scaling: float
    """Smallest |c_n| over all entries of all experts; a zero entry loses a rank (Lemma 1 of the paper)."""


@torch.no_grad()
def measure_ranks(layer: MxD, experts: Sequence[int]) -> ExpertRanks:
    """Compute the singular values of at least one expert's matrix. Each takes about O³ FLOPs."""
    singular = [torch.linalg.svdvals(small_matrix(layer, expert).double()) for expert in experts]
    full_rank = min(layer.config.hidden_width, layer.config.output_width)
    width, rounding = max(layer.config.hidden_width, layer.config.output_width), torch.finfo(torch.float32).eps
    # Values above float32 rounding count, as in numpy's ``matrix_rank``.
    ranks = [int((values > float(values[0]) * width * rounding).sum()) for values in singular]
    shares = [values / values[0].clamp_min(torch.finfo(values.dtype).tiny) for values in singular]
    return ExpertRanks(
        normalized_rank=sum(ranks) / len(ranks) / full_rank,
        stable_rank=sum(float(share.square().sum()) for share in shares) / len(shares),
        min_singular_value=min(float(share[full_rank - 1]) if len(share) >= full_rank else 0.0 for share in shares),
        min_scaling=layer.scaling_NO.abs().min().item(),
    )


def small_matrix(layer: MxD, expert: int) -> Tensor:
    """Smaller matrix with the singular values of W_n: its QR factor R if W_n is tall. Float32 on the CPU. GPUs are no
    faster for one matrix, and MPS has no decompositions and no float64."""
    matrix_HO = layer.expert_matrix(expert).float().cpu()
    if matrix_HO.shape[0] <= matrix_HO.shape[1]:
        return matrix_HO
    square_OO: Tensor = torch.linalg.qr(matrix_HO, mode="r").R
    return square_OO


MEDIAN_STEPS = 20
"""Iterations for the typical mixing of a batch."""


@torch.no_grad()
def output_routing_share(layer: SparseLayer, x_TI: Tensor, target_TO: Tensor) -> float:
    """Return the normalised MSE with the mixing frozen at its median over tokens, divided by that of the mean target.
    It is the routing share of an evaluation, measured on the outputs instead of the loss. 0: the routing does
    nothing."""
    mixing_TM = layer.mixing(layer.route(x_TI))
    typical_M = spatial_median(mixing_TM, mixing_TM.mean(dim=0), steps=MEDIAN_STEPS)
    frozen_TO = layer.decode_mixed(layer.dense_output(x_TI), typical_M.expand_as(mixing_TM))
    mean_TO = target_TO.mean(dim=0).expand_as(target_TO)
    return float(normalized_mse(frozen_TO, target_TO) / normalized_mse(mean_TO, target_TO))


def effective_number(counts_N: Tensor) -> float:
    """2 to the power of the load's entropy: N if all experts are used equally, 1 if one does everything."""
    share_N = counts_N.double() / counts_N.sum().clamp_min(1)
    positive = share_N[share_N > 0]
    return float(2.0 ** -(positive * positive.log2()).sum())


def gini(counts_N: Tensor) -> float:
    """Gini coefficient of the load: 0 if all experts are used equally, near 1 if one does everything."""
    sorted_N = counts_N.double().sort().values
    count, total = len(sorted_N), sorted_N.sum()
    if total == 0:
        return 0.0
    ranks_N = torch.arange(1, count + 1, dtype=torch.float64, device=sorted_N.device)
    return float(2 * (ranks_N * sorted_N).sum() / (count * total) - (count + 1) / count)
