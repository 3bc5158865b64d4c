"""Base class for sparse layers: a gate selects experts, a decoder computes the output.

The two are separate so that routing can be shown, and so that steering can change a ``Routing`` between them.

Shapes: T tokens, I input width, O output width, N experts, K active experts, M mixing width.
"""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from mxd.trainer.config.layer import CONFIG_FILE, WEIGHTS_FILE, LayerConfig, Method, method_traits
from mxd.trainer.errors import UserError
from mxd.trainer.layers.ops import gate, is_transformed, mix
from mxd.trainer.layers.sharding import Shards, sharded_gate, sharded_mix
from mxd.trainer.layers.tensor_files import dequantized, read_rows, save_part, save_tensors
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


def l0(routing: Routing) -> Tensor:
    """Mean number of active experts per token, a scalar."""
    return (routing.activations_TK > 0).sum(dim=1).float().mean()


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
