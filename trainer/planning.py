"""What fitting a layer takes before anything is loaded: parameters, memory, arithmetic, traffic, time.

All of it follows from widths. FLOPs are two for a multiplication with its addition. What has to be assumed (how much of
a device's peak is reached) is an argument and not hidden.

Shapes: I input width, H hidden width, O output width, N experts, K active, R rank, W processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from trainer.config import LayerConfig, Method
from trainer.gate_config import FLAT, GateConfig, GateSizes, settled
from trainer.methods import EVERY_EXPERT, HEADS, inner_width, routed_columns

FLOAT32, BFLOAT16 = 4, 2
ADAMW_BYTES = 16
"""A parameter in float32 with its gradient and two moments."""


BLOCK_PASSES, ACTIVATION_PASSES = 24, 6
"""How often a block reads or writes a vector of its width, and of its hidden width, beside its products: norms,
residuals, rotations, activations. Counted in Llama's and GPT-2's code."""
SCORE_BYTES = 16
"""A score is written, given its bias, and looked at for the largest."""
OPTIMIZER_BYTES = 36
"""A step's traffic for a parameter: gradient made and read, weight and two moments read and written."""


@dataclass(frozen=True)
class Forward:
    """The part of a language model that a token goes through: some blocks, up to the last that is fitted."""

    blocks: int
    matrix_parameters: int
    """Of all these blocks together."""
    width: int
    hidden_width: int
    context: int

    @property
    def flops(self) -> int:
        """A token; attention reads half of the context on average."""
        return 2 * self.matrix_parameters + self.blocks * 4 * self.width * self.context // 2

    def passing_bytes(self, precision: int) -> int:
        """Memory traffic of a token outside of matrix products, which read little beside it."""
        return self.blocks * precision * (BLOCK_PASSES * self.width + ACTIVATION_PASSES * self.hidden_width)


@dataclass(frozen=True)
class LanguageModelSizes:
    """Of a causal language model with gated MLPs and grouped attention."""

    width: int
    hidden_width: int
    layers: int
    vocabulary: int
    heads: int
    key_value_heads: int

    @property
    def block_parameters(self) -> int:
        """Of one block, norms left out."""
        attention = 2 * self.width**2 + 2 * self.width**2 * self.key_value_heads // self.heads
        return attention + 3 * self.width * self.hidden_width

    @property
    def parameters(self) -> int:
        """Of all blocks, the embedding and the unembedding."""
        return self.layers * self.block_parameters + 2 * self.vocabulary * self.width

    def used_parameters(self, layer: int) -> int:
        """Of the blocks up to a layer and the embedding: what a forward pass that stops there reads."""
        return (layer + 1) * self.block_parameters + self.vocabulary * self.width

    def forward(self, layer: int, context: int) -> Forward:
        """What is run where a forward pass stops behind a layer."""
        blocks = layer + 1
        return Forward(blocks, blocks * self.block_parameters, self.width, self.hidden_width, context)

    def flops_per_token(self, layer: int, context: int) -> int:
        """Of a forward pass that stops behind a layer."""
        return self.forward(layer, context).flops


@dataclass(frozen=True)
class LayerSizes:
    """Of a layer for a gated MLP (``readers`` 2) or a plain one (1); an MxD unless ``method`` says otherwise."""

    input_width: int
    hidden_width: int
    output_width: int
    num_experts: int
    k: int
    readers: Literal[1, 2]
    method: Method = "mxd"
    rank: int | None = None
    """Numbers that an expert's answer passes through, of a MOLT those of all transforms together; None where there is
    no such bottleneck."""
    gate: GateConfig = FLAT

    @classmethod
    def of(cls, config: LayerConfig) -> LayerSizes:
        """Those of a layer."""
        readers: Literal[1, 2] = 2 if config.encoder == "glu" else 1
        widths = config.input_width, config.hidden_width, config.output_width
        inner = None if config.rank is None else inner_width(config.method, config.num_experts, config.rank)
        return cls(*widths, config.num_experts, config.k, readers, config.method, inner, config.gate)

    @cached_property
    def gate_sizes(self) -> GateSizes:
        """Of the gate; of a PEER, of one of its heads."""
        gate = GateConfig(gate="product-key") if self.method == "peer" else self.gate
        return GateSizes(settled(gate, self.num_experts, self.k), self.num_experts, self.input_width)

    @property
    def heads(self) -> int:
        """How many times over it has its gate."""
        return HEADS if self.method == "peer" else 1

    @property
    def encodes(self) -> bool:
        """Whether it has an encoder: every kind of MxD."""
        return self.method.endswith("mxd")

    @property
    def table_width(self) -> int:
        """Of an expert's row of what it writes or scales: O, of a low-rank layer R, of a MOLT nothing."""
        return 0 if self.method == "molt" else self.rank or self.output_width

    @property
    def _reading(self) -> int:
        """Weights of matrices that read the layer's input, whose gradient nobody needs."""
        if self.encodes:
            return self.readers * self.input_width * self.hidden_width
        beside = {"skip-transcoder": self.output_width, "molt": self.rank or 0}
        return self.input_width * beside.get(self.method, 0)

    @property
    def _writing(self) -> int:
        """Weights of matrices behind these."""
        up = self.rank * self.output_width if self.rank else 0
        return up + (self.hidden_width * self.table_width if self.encodes else 0)

    @property
    def dense_parameters(self) -> int:
        """Encoder, decoder and output bias: what every process has."""
        biases = self.readers * self.hidden_width if self.encodes else 0
        return self._reading + self._writing + biases + self.output_width

    @property
    def table_parameters(self) -> int:
        """Gate and scalings: where the gate is flat, what has a row an expert and can be spread over processes."""
        beside = {"jumprelu-mxd": 1, "peer": self.input_width + 1}.get(self.method, 0)
        return self.heads * self.gate_sizes.parameters + self.num_experts * (self.table_width + beside)

    @property
    def parameters(self) -> int:
        """All."""
        return self.dense_parameters + self.table_parameters

    @property
    def dense_flops(self) -> int:
        """A token, forward and backward, of all products but the gate's; those of a ReLU-MxD go over all experts."""
        dense = 2 * (2 * self._reading + 3 * self._writing)
        everywhere = self.num_experts * (self.input_width + 3 * self.table_width)
        return dense + (2 * everywhere if self.method in EVERY_EXPERT else 0)

    @property
    def gate_flops(self) -> int:
        """A token's scores: of all experts, or of what a cheaper gate looks at."""
        return self.heads * self.gate_sizes.flops

    @property
    def row_flops(self) -> int:
        """A token's K rows of each table, forward and backward."""
        columns = routed_columns(self.method, self.k)
        return 0 if self.method in EVERY_EXPERT else 2 * columns * (self._gate_rows + 3 * self.table_width)

    @property
    def _gate_rows(self) -> int:
        """Numbers in the rows that a chosen expert's score is made of, of a PEER also what its neuron reads, twice."""
        neuron = 2 if self.method == "peer" else 0
        return (self.gate_sizes.rows_per_expert + neuron) * self.input_width

    @property
    def step_flops_per_token(self) -> int:
        """Forward and backward in the sparse form: the gate's scores, the dense products, and K rows of each table."""
        return self.dense_flops + self.gate_flops + self.row_flops

    def step_bytes_per_token(self, batch: int) -> int:
        """Memory traffic beside the products: K rows, scores, hidden vectors, and the optimiser's share of a token."""
        sparse = self.method not in EVERY_EXPERT
        columns = routed_columns(self.method, self.k) if sparse else 0
        rows = FLOAT32 * columns * (self._gate_rows + 5 * self.table_width)
        gathered = 2 * FLOAT32 * self.gate_sizes.read_again * self.input_width
        hidden = FLOAT32 * 6 * self.readers * self.hidden_width if self.encodes else 0
        scores = SCORE_BYTES * self.gate_sizes.scores * (1 if sparse else 3)
        return rows + gathered + hidden + scores + OPTIMIZER_BYTES * self.parameters // batch


@dataclass(frozen=True)
class Devices:
    """Devices and what joins them; peaks are the vendor's."""

    number: int
    per_machine: int
    flops: float
    """Peak of one, per second, in the language model's precision."""
    reached: float
    """Share of that peak that is assumed to be reached."""
    link: float
    """Bytes per second that a device receives from another one in its machine."""
    network: float
    """The same from another machine."""


@dataclass(frozen=True)
class Plan:
    """What one device holds, does and receives."""

    language_model_bytes: float
    layer_bytes: float
    activation_bytes: float
    tokens_per_second: float
    """Of all devices, where what travels is hidden behind arithmetic."""
    flops_per_token: int
    seconds_per_step: float
    """Of arithmetic."""
    language_model_link_seconds: float
    """A step: gathering the language model's weights from the devices of the machine."""
    layer_link_seconds: float
    """A step: tokens to the experts and back."""
    layer_network_seconds: float
    """A step: averaging gradients over the machines."""

    @property
    def bytes(self) -> float:
        """All that one device holds."""
        return self.language_model_bytes + self.layer_bytes + self.activation_bytes

    def hours(self, tokens: float) -> float:
        """Of fitting on so many tokens."""
        return tokens / self.tokens_per_second / 3600


def plan(
    language_model: LanguageModelSizes, index: int, layer: LayerSizes, devices: Devices, tokens_each: int, context: int
) -> Plan:
    """Plan a step of ``tokens_each`` tokens a device.

    Language model and experts are spread over the devices of a machine, and every machine has a copy of both: what is
    needed at every moment then never leaves a machine, and only gradients do.
    """
    inside = min(devices.per_machine, devices.number)
    machines = devices.number // inside
    others = (inside - 1) / inside
    model_bytes = BFLOAT16 * language_model.used_parameters(index)
    flops = language_model.flops_per_token(index, context) + layer.step_flops_per_token
    rate = devices.number * devices.flops * devices.reached / flops
    rows = FLOAT32 * tokens_each * (inside - 1)
    held = layer.dense_parameters + layer.table_parameters / inside
    averaged_inside = 2 * others * FLOAT32 * layer.dense_parameters
    averaged_outside = 2 * (machines - 1) / machines * FLOAT32 * held
    return Plan(
        language_model_bytes=model_bytes / inside + 2 * BFLOAT16 * language_model.block_parameters,
        layer_bytes=ADAMW_BYTES * held,
        # Scores of all of the machine's tokens against the experts of this device, and a window's rows.
        activation_bytes=FLOAT32 * tokens_each * layer.num_experts
        + 16 * FLOAT32 * tokens_each * (layer.input_width + layer.output_width),
        tokens_per_second=rate,
        flops_per_token=flops,
        seconds_per_step=tokens_each * devices.number / rate,
        language_model_link_seconds=others * model_bytes / devices.link,
        layer_link_seconds=(rows * (layer.input_width + 2 * layer.output_width) + averaged_inside) / devices.link,
        layer_network_seconds=averaged_outside / devices.network,
    )
