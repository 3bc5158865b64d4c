"""Sparse layers, and the Mixture of Decoders (arXiv 2505.21364, section 3): an MLP as N full-rank linear experts.

In every sparse layer, a gate selects experts and a decoder computes the output. The two are separate so that routing
can be shown, and so that steering can change a ``Routing`` between them. Of an MxD:

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

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.layer import CONFIG_FILE, WEIGHTS_FILE, Activation, LayerConfig, Method, method_traits
from mxd.trainer.errors import UserError
from mxd.trainer.layers.ops import PAIRS_AT_A_TIME, Shards, gate, is_transformed, mix, sharded_gate, sharded_mix
from mxd.trainer.layers.tensor_files import dequantized, read_rows, save_part, save_tensors
from mxd.trainer.utils.distributed import SINGLE_PROCESS
from mxd.trainer.utils.files import explained

ExpertSelection = Tensor | slice
"""Ids of some experts on the CPU, or a range of ids."""
DRAWN_AT_A_TIME = 1 << 22
"""Random weights that are drawn at a time if not all of them are kept."""


_DRAW_LINEAR = partial(nn.init.kaiming_uniform_, a=math.sqrt(5))
"""Draws a weight as ``nn.Linear`` does."""


def drawn_weight(
    inputs: int,
    outputs: int,
    rows: slice = slice(None),
    columns: slice = slice(None),
    draw: Callable[[Tensor], object] = _DRAW_LINEAR,
) -> Tensor:
    """Some rows and columns of a random weight [outputs, inputs], by default the one that ``nn.Linear`` draws. All of
    it is drawn, a few rows at a time, so that processes that hold different parts draw the same random numbers."""
    first, end, _ = rows.indices(outputs)
    weight_RC = torch.empty(end - first, len(range(inputs)[columns]))
    for top in range(0, outputs, step := max(1, DRAWN_AT_A_TIME // inputs)):
        drawn_DI = torch.empty(min(step, outputs - top), inputs)
        draw(drawn_DI)
        kept_DC = drawn_DI[max(0, first - top) : max(0, end - top), columns]
        done = max(0, top - first)
        weight_RC[done : done + len(kept_DC)] = kept_DC
    return weight_RC


def drawn_bias(inputs: int, outputs: int) -> Tensor:
    """The bias [outputs] that ``nn.Linear(inputs, outputs)`` draws."""
    return nn.init.uniform_(torch.empty(outputs), -1 / math.sqrt(inputs), 1 / math.sqrt(inputs))


class Gate(nn.Linear):
    """a = TopK(relu(x G + b)); ``weight`` is [N, I], or has the rows of some experts."""

    def __init__(self, input_width: int, num_experts: int, shards: Shards | None = None) -> None:
        if shards is None:
            super().__init__(input_width, num_experts)
        else:
            own = shards.rows(shards.rank)
            super().__init__(input_width, own.stop - own.start, device="meta")
            self.weight = nn.Parameter(drawn_weight(input_width, num_experts, rows=own))
            drawn_bias(input_width, num_experts)  # unused, but later random numbers depend on it
            self.bias = nn.Parameter(torch.empty(self.out_features))
        nn.init.zeros_(self.bias)

    def choose(self, x_TI: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Gate activations and ids of the K experts with the largest scores: two tensors [T, K], largest first. A gate
        activation of 0 marks an inactive expert."""
        return gate(x_TI, self.weight, self.bias, k)

    def rows(self, experts: ExpertSelection) -> Tensor:
        """Directions of some experts, [E, I]."""
        return self.weight.detach()[experts]


LayerInput = Literal["mlp-input", "mlp-output"]
"""Input of a layer: the MLP's input, or the MLP's output (autoencoders)."""


class Routing(NamedTuple):
    """Active experts of each token and their gate activations. An edit may add columns beyond K."""

    activations_TK: Tensor
    """Gate activations, non-negative before edits; 0 marks an inactive expert."""
    indices_TK: Tensor
    """Expert ids, int64."""


def routing_of(activations_TN: Tensor) -> Routing:
    """The active experts of each token. All N if gradients are recorded, since those of inactive ones are not 0."""
    if activations_TN.requires_grad or is_transformed():
        columns = activations_TN.shape[1]
    else:
        columns = max(int((activations_TN != 0).sum(dim=1).max()), 1) if activations_TN.numel() else 1
    indices_TK = activations_TN.detach().abs().topk(columns, dim=1).indices
    return Routing(activations_TN.gather(1, indices_TK), indices_TK)


class LayerOutput(NamedTuple):
    """Output of a layer for a batch of tokens."""

    output_TO: Tensor
    routing: Routing
    dense_TM: Tensor
    mixing_TM: Tensor


class SparseLayer(nn.Module, ABC):
    """Layer of N experts, K of them active per token: a = TopK(relu(x G + b_gate))."""

    method: ClassVar[Method]
    reads: ClassVar[LayerInput] = "mlp-input"
    mixes_outputs: ClassVar[bool] = True
    """True if each output depends on one entry of the mixing only, and linearly."""
    expert_tables: ClassVar[tuple[str, ...]] = ("gate.weight", "gate.bias")
    """Names of the parameters with one row per expert; empty if the experts cannot be sharded over processes."""
    gate: Gate

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__()
        if config.k > config.num_experts:
            raise UserError(f"k={config.k} exceeds the number of experts, {config.num_experts}. Lower --k.")
        self.config = config
        self.shards = shards  # if not None, ``route`` and ``decode`` communicate
        self.own_experts = slice(0, config.num_experts) if shards is None else shards.rows(shards.rank)
        self._at_k: dict[int, Self] = {}
        self.gate = Gate(config.input_width, config.num_experts, shards)

    @torch.inference_mode(mode=False)  # weights that moved in inference mode could never be in a backward pass again
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call, no-any-return]

    def required_rank(self) -> int:
        """The rank in the config. Raises UserError if the config has no rank."""
        if self.config.rank is None:
            raise UserError(f"The config of a {self.method} needs a rank.")
        return self.config.rank

    def route(self, x_TI: Tensor) -> Routing:
        """Select the experts of each token, largest gate activation first."""
        if self.shards is None:
            return Routing(*self.gate.choose(x_TI, self.config.k))
        return Routing(*sharded_gate(x_TI, self.gate.weight, self.gate.bias, self.config.k, self.shards))

    def at_k(self, k: int) -> Self:
        """This layer with only the k strongest experts of each token. It shares the weights and is cached. Raises
        UserError if k is not between 1 and the layer's K, or the method has no top-k."""
        if k != self.config.k and not method_traits(self.method).has_top_k:
            raise UserError(f"A {self.method} has no top-k, so k cannot be chosen. Omit k.")
        if k < 1:
            raise UserError(f"k={k} activates no expert. Choose at least 1.")
        if k > self.config.k:
            raise UserError(f"k={k} exceeds the layer's K={self.config.k}. Choose a smaller k.")
        return self._with_k(k)

    def _with_k(self, k: int) -> Self:
        if k == self.config.k:
            return self
        if k not in self._at_k:
            narrow = copy.copy(self)  # shares modules and parameters with this layer, on any device
            narrow.config = self.config.model_copy(update={"k": k})
            self._at_k[k] = narrow
        return self._at_k[k]

    def mix(self, routing: Routing, table_NO: Tensor) -> Tensor:
        """Sum the rows of a table with one row per expert, weighted by gate activation, [T, O]."""
        if self.shards is None:
            return mix(routing.activations_TK, routing.indices_TK, table_NO)
        return sharded_mix(routing.activations_TK, routing.indices_TK, table_NO, self.shards)

    @abstractmethod
    def dense_output(self, x_TI: Tensor) -> Tensor:
        """Part of the output that needs no routing, [T, M]: z D of an MxD, x W_skip, or nothing."""

    def decode(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """Output [T, O] for a routing, which may be edited."""
        return self.decode_mixed(dense_TM, self.mixing(routing))

    @abstractmethod
    def mixing(self, routing: Routing) -> Tensor:
        """Part of the output that needs only the routing, [T, M]; linear in the gate activations."""

    @abstractmethod
    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        """Output [T, O] for the mixing of a routing."""

    @property
    def output_projection(self) -> Tensor | None:
        """Matrix [O, M] that maps the mixed hidden vector to the output; None if the layer mixes outputs, or if its
        mixing is not element-wise."""
        return None

    @abstractmethod
    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """Contribution of the routed experts to the output, [T, O]; linear in the gate activations, without bias."""

    @property
    @abstractmethod
    def table(self) -> Tensor:
        """One row per expert: its output direction, or its scaling of the dense output. A parameter if possible."""

    @abstractmethod
    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """Euclidean norm of each active expert's contribution to the output, [T, K]."""

    def forward(self, x_TI: Tensor, k: int | None = None) -> LayerOutput:
        """Route, then decode, with ``k`` experts per token instead of K if given (random-K training)."""
        routing = (self if k is None else self._with_k(min(k, self.config.num_experts))).route(x_TI)
        dense_TM, mixing_TM = self.dense_output(x_TI), self.mixing(routing)
        return LayerOutput(self.decode_mixed(dense_TM, mixing_TM), routing, dense_TM, mixing_TM)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def save(self, folder: Path) -> None:
        """Write ``layer.json`` and ``layer.safetensors``, or this process's part of it, into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.shards is None or self.shards.rank == 0:
            (folder / CONFIG_FILE).write_text(self.config.model_dump_json(indent=1) + "\n")
        tensors = {name: value.detach().contiguous() for name, value in self.state_dict().items()}
        if self.shards is None:
            save_tensors(tensors, folder / WEIGHTS_FILE)
        else:
            save_part(tensors, self.expert_tables, self.shards, folder / WEIGHTS_FILE)


SMALLEST_NORM = 1e-12
"""Lower bound of the squared target norm, which avoids division by zero."""


def normalized_mse(output_TO: Tensor, target_TO: Tensor) -> Tensor:
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖², a scalar: the training loss. 1 is the error of predicting zero."""
    errors_T = (output_TO - target_TO).square().sum(dim=1)
    return (errors_T / target_TO.square().sum(dim=1).clamp_min(SMALLEST_NORM)).mean()


def active_counts(routing: Routing, num_experts: int) -> Tensor:
    """Number of tokens on which each expert is active, [N]."""
    # bincount and boolean indexing would synchronise with the GPU to determine the size of the result.
    counts_N = routing.indices_TK.new_zeros(num_experts)
    active_P = (routing.activations_TK > 0).reshape(-1)
    return counts_N.scatter_add_(0, routing.indices_TK.reshape(-1), active_P.to(counts_N.dtype))


def read_weights(
    path: Path, expected: nn.Module, tables: Collection[str] = (), rows: slice = slice(None)
) -> dict[str, Tensor]:
    """Read a safetensors file or its parts, and check the tensors against the module that will load them, which needs
    no contents and may hold only some ``rows`` of the ``tables``. Return tensors of the module's dtypes. Raises
    UserError if a file is damaged, or the tensors do not match the module."""
    state = expected.state_dict()
    message = f"Cannot read {path}: {{error}}. Restore it from a copy or train the run again."
    with explained(message, SafetensorError, OSError, ValueError):
        tensors = dequantized(read_rows(path, tables, rows))
    expected_shapes = {name: tuple(value.shape) for name, value in state.items()}
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    if shapes != expected_shapes:
        names = sorted(shapes.keys() | expected_shapes.keys())
        differing = ", ".join(name for name in names if shapes.get(name) != expected_shapes.get(name))
        raise UserError(f"Weights in {path} do not match the layer config: missing, unknown or misshapen {differing}.")
    return {name: value.to(state[name].dtype) for name, value in tensors.items()}


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
