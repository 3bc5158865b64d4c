"""What every sparse layer is: a gate that chooses, a decoder that answers.

Keeping the two apart is what makes routing visible and steering possible: an edit changes a ``Routing`` between them.

Shapes: T tokens, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trainer.config import LayerConfig, Method
from trainer.errors import UserError
from trainer.gate_config import FITTED, GateForm
from trainer.layers.gates import FlatGate, Gate, build_gate
from trainer.layers.kernels import mix
from trainer.layers.saved import CONFIG_FILE, WEIGHTS_FILE
from trainer.layers.sharded import Shards, sharded_gate, sharded_mix
from trainer.methods import NO_TOP_K

_SYSTEM_ERROR = re.compile(r"os error (\d+)")


Reads = Literal["mlp-input", "mlp-output"]
"""What a layer is given: what the MLP reads, or (an autoencoder) what it has written."""


class Routing(NamedTuple):
    """Which experts are active on each token, and how strongly. Columns may be more than K after an edit."""

    coefficients_TK: Tensor
    """Non-negative from the gate; 0 marks an expert that is not active."""
    indices_TK: Tensor
    """Expert ids, int64."""


class LayerOutput(NamedTuple):
    """What a layer gives for a batch of tokens."""

    output_TO: Tensor
    routing: Routing
    dense_TM: Tensor
    """From ``SparseLayer.dense_output``."""


class SparseLayer(nn.Module, ABC):
    """A layer of N experts of which K are active on a token: a = TopK(relu(x G + b_gate))."""

    method: ClassVar[Method]
    reads: ClassVar[Reads] = "mlp-input"
    expert_tables: ClassVar[tuple[str, ...]] = ("gate.weight", "gate.bias")
    """Parameters with a row an expert; empty where the experts cannot be spread over processes."""
    gates: ClassVar[frozenset[GateForm]] = FITTED | {"cells", "projected"}
    """Which it may have."""
    gate: Gate

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        if config.k > config.num_experts:
            raise UserError(f"K is {config.k} but there are only {config.num_experts} experts; lower --k.")
        self.config = config
        self.shards: Shards | None = None
        self._at_k: dict[int, SparseLayer] = {}
        if config.gate.gate not in self.gates:
            raise UserError(f"A {self.method} does not keep the K largest of a token; leave --gate at flat.")
        self.gate = build_gate(config.gate, config.input_width, config.num_experts, config.k)

    @property
    def span(self) -> int:
        """How many MLPs' outputs it writes; all but a cross-layer MxD write one."""
        return self.config.span or 1

    def parts(self, output_TO: Tensor) -> tuple[Tensor, ...]:
        """An output, or what experts add to it, taken apart into what each of these MLPs is to answer."""
        return output_TO.chunk(self.span, dim=-1)

    def route(self, x_TI: Tensor) -> Routing:
        """Choose the experts of each token, largest coefficient first."""
        if self.shards is None:
            return Routing(*self.gate.choose(x_TI, self.config.k))
        assert isinstance(self.gate, FlatGate)
        return Routing(*sharded_gate(x_TI, self.gate.weight, self.gate.bias, self.config.k, self.shards))

    def at_k(self, k: int) -> SparseLayer:
        """This layer with the k strongest experts of a token alone, on the same weights; the same one every time.

        Raises:
            UserError: the layer has no such K, or none that can be chosen.
        """
        if k == self.config.k:
            return self
        if self.method in NO_TOP_K:
            raise UserError(f"The gate of a {self.method} lets no number of experts be chosen; leave k out.")
        if not 0 < k < self.config.k:
            raise UserError(f"A token has {self.config.k} experts at most, and {k} are asked for; choose a smaller k.")
        if k not in self._at_k:
            narrow = copy.copy(self)  # modules and parameters are those of this layer, wherever they are moved
            narrow.config = self.config.model_copy(update={"k": k})
            self._at_k[k] = narrow
        return self._at_k[k]

    def mix(self, routing: Routing, table_NO: Tensor) -> Tensor:
        """Mix the rows of a table with a row an expert by coefficient, [T, O]."""
        if self.shards is None:
            return mix(routing.coefficients_TK, routing.indices_TK, table_NO)
        return sharded_mix(routing.coefficients_TK, routing.indices_TK, table_NO, self.shards)

    def keep_part(self, shards: Shards) -> None:
        """Keep one process's slice of the experts; route and decode then work together with the other processes.

        Raises:
            UserError: this method has no such form.
        """
        if not self.expert_tables:
            raise UserError(f"The experts of a {self.method} cannot be spread over processes; fit it with copies.")
        if not isinstance(self.gate, FlatGate):
            raise UserError("Only experts with a flat gate can be spread over processes; fit with copies.")
        if shards.world > self.config.num_experts:
            raise UserError(f"{self.config.num_experts} experts cannot be spread over {shards.world} processes.")
        for name in self.expert_tables:
            parameter = self.get_parameter(name)
            parameter.data = shards.part(parameter.data)
        self.shards = shards

    @abstractmethod
    def dense_output(self, x_TI: Tensor) -> Tensor:
        """What the layer makes of its input before experts come in, [T, M]: z D of an MxD, x W_skip, or nothing."""

    @abstractmethod
    def decode(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """The layer's output [T, O] under ``routing``, whoever made it."""

    @abstractmethod
    def mixing(self, routing: Routing) -> Tensor:
        """What the routing decides by itself, without the layer's input, [T, M]: linear in the coefficients."""

    @abstractmethod
    def decode_mixed(self, dense_TM: Tensor, mixing_TO: Tensor) -> Tensor:
        """The output [T, O] under a ``mixing``, whoever made it; with that of a routing, the same as ``decode``."""

    @abstractmethod
    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """What the experts of ``routing`` add to the output, [T, O]: linear in the coefficients, without the bias."""

    def own_penalty(self, routing: Routing) -> Tensor | None:  # noqa: ARG002
        """What the layer itself wants added to the loss of a step, weighted; None where nothing is."""
        return None

    @property
    @abstractmethod
    def table(self) -> Tensor:
        """What each expert writes, or how it scales what is written: a row an expert. A parameter where it can be."""

    @abstractmethod
    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """Euclidean norm of each active expert's own contribution to the output, [T, K]."""

    def forward(self, x_TI: Tensor, k: int | None = None) -> LayerOutput:
        """Route, then decode; with ``k`` experts of each token where that is asked for, as in random-K fitting."""
        if k is None or k == self.config.k:
            routing = self.route(x_TI)
        else:
            assert self.shards is None
            routing = Routing(*self.gate.choose(x_TI, min(k, self.config.num_experts)))
        dense_TM = self.dense_output(x_TI)
        return LayerOutput(self.decode(dense_TM, routing), routing, dense_TM)

    def whole(self) -> SparseLayer:
        """The layer with all experts: itself, or put together from the parts of all processes, which all must ask."""
        if self.shards is None:
            return self
        state = self.state_dict()
        state |= {name: self.shards.whole(state[name]) for name in self.expert_tables}
        with torch.device("meta"):
            layer = type(self)(self.config)
        layer.load_state_dict(state, assign=True)
        return layer

    @property
    def num_parameters(self) -> int:
        """Every weight and bias, counted."""
        return sum(parameter.numel() for parameter in self.parameters())

    def save(self, folder: Path) -> None:
        """Write ``layer.json`` and ``layer.safetensors`` into ``folder``."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG_FILE).write_text(self.config.model_dump_json(indent=1) + "\n")
        save_tensors(
            {name: value.detach().contiguous() for name, value in self.state_dict().items()}, folder / WEIGHTS_FILE
        )

    @classmethod
    def from_config(cls, config: LayerConfig) -> Self:
        """A new layer with its starting values."""
        return cls(config)


def save_tensors(tensors: Mapping[str, Tensor], target: Path) -> None:
    """Write a safetensors file.

    Raises:
        OSError: it cannot be written.
    """
    try:
        save_file(dict(tensors), target)
    except SafetensorError as error:
        # The library tells a full disk from its other errors in words alone.
        number = _SYSTEM_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), str(error)) from error


def read_weights(path: Path, expected: nn.Module) -> dict[str, Tensor]:
    """Tensors of a safetensors file, checked against the module that will take them, in its types.

    Raises:
        UserError: the file is damaged, or its tensors are not those of the module.
    """
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} cannot be read as safetensors ({error}); restore it or fit the run again.") from error
    state = expected.state_dict()
    wanted = {name: tuple(value.shape) for name, value in state.items()}
    found = {name: tuple(value.shape) for name, value in tensors.items()}
    if wanted != found:
        differing = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
        raise UserError(f"{path} does not fit its config: {', '.join(differing)} missing, unknown or of another shape.")
    return {name: value.to(state[name].dtype) for name, value in tensors.items()}
