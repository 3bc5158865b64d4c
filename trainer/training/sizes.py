"""Sizes of language models and layers, and the FLOPs and memory traffic that follow from their widths alone.

A multiply-add counts as two FLOPs.

Shapes: I input width, H hidden width, O output width, N experts, K active, R rank or rows, C columns.
"""

from dataclasses import dataclass
from typing import Literal, Self

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.config.layer import max_active, method_traits

FLOAT32, BFLOAT16 = 4, 2
"""Bytes per number."""
ADAMW_BYTES = 16
"""Bytes per trained parameter: float32 weight, gradient and two moments."""

BLOCK_PASSES, ACTIVATION_PASSES = 24, 6
"""Vectors of hidden width, and of MLP width, that a block reads or writes per token outside matrix products: norms,
residuals, rotary embeddings, activation functions. Counted in Llama's and GPT-2's code."""
SCORE_BYTES = 16
"""Memory traffic per gate score: write, add the bias, read for top-k."""
OPTIMIZER_BYTES = 36
"""Memory traffic per parameter and step: write and read the gradient, read and write the weight and two moments."""


@dataclass(frozen=True)
class Forward:
    """Forward pass through the model's blocks, up to the last trained layer."""

    blocks: int
    matrix_parameters: int
    """Parameters of all these blocks, without norms and biases."""
    width: int
    hidden_width: int
    context: int

    @property
    def flops(self) -> int:
        """FLOPs per token. Attention reads half of the context on average."""
        return 2 * self.matrix_parameters + self.blocks * 4 * self.width * self.context // 2

    def elementwise_bytes(self, itemsize: int) -> int:
        """Memory traffic per token of element-wise operations, which outweighs that of matrix products."""
        return self.blocks * itemsize * (BLOCK_PASSES * self.width + ACTIVATION_PASSES * self.hidden_width)


@dataclass(frozen=True)
class LayerSizes:
    """Sizes of a layer that replaces a gated MLP (``readers`` 2) or a plain one (1)."""

    input_width: int
    hidden_width: int
    output_width: int
    num_experts: int
    k: int
    readers: Literal[1, 2]
    method: Method = "mxd"
    rank: int | None = None
    """Bottleneck width R of the experts; for a MOLT, the sum over its transforms. None without a bottleneck."""

    @classmethod
    def from_config(cls, config: LayerConfig) -> Self:
        readers: Literal[1, 2] = 2 if config.encoder == "glu" and not method_traits(config.method).mixes_hidden else 1
        widths = config.input_width, config.hidden_width, config.output_width
        traits = method_traits(config.method).rank
        inner = None if traits is None or config.rank is None else traits.bottleneck(config.num_experts, config.rank)
        return cls(*widths, config.num_experts, config.k, readers, config.method, inner)

    @property
    def encodes(self) -> bool:
        """True if the layer has an encoder, as every kind of MxD."""
        return self.method.endswith("mxd")

    @property
    def table_width(self) -> int:
        """Width of an expert's row in the table: O, R with a bottleneck, H if hidden units are mixed, 0 for a MOLT."""
        if self.method == "molt":
            return 0
        return self.hidden_width if method_traits(self.method).mixes_hidden else self.rank or self.output_width

    @property
    def _input_weights(self) -> int:
        """Weights that multiply the layer's input, whose gradient is not needed."""
        if self.encodes:
            return self.readers * self.input_width * self.hidden_width
        columns = {"skip-transcoder": self.output_width, "molt": self.rank or 0}
        return self.input_width * columns.get(self.method, 0)

    @property
    def _later_weights(self) -> int:
        if method_traits(self.method).mixes_hidden:
            return self.hidden_width * self.output_width
        up = self.rank * self.output_width if self.rank else 0
        return up + (self.hidden_width * self.table_width if self.encodes else 0)

    @property
    def dense_parameters(self) -> int:
        """Parameters of encoder, decoder and output bias, which every process holds."""
        biases = self.readers * self.hidden_width if self.encodes else 0
        return self._input_weights + self._later_weights + biases + self.output_width

    @property
    def table_parameters(self) -> int:
        """Parameters of gate and expert table, which have one row per expert and can be sharded."""
        return self.num_experts * (self.input_width + 1 + self.table_width)

    @property
    def parameters(self) -> int:
        return self.dense_parameters + self.table_parameters

    @property
    def dense_flops(self) -> int:
        """FLOPs per token, forward and backward, of all products except the gate's."""
        return 2 * (2 * self._input_weights + 3 * self._later_weights)

    @property
    def gate_flops(self) -> int:
        """FLOPs per token of the gate's scores."""
        return 2 * self.input_width * self.num_experts

    @property
    def step_flops_per_token(self) -> int:
        """FLOPs per token, forward and backward: gate scores, dense products and K rows of each table."""
        row_flops = 2 * max_active(self.method, self.k) * (self.input_width + 3 * self.table_width)
        return self.dense_flops + self.gate_flops + row_flops

    def step_bytes_per_token(self, batch: int) -> int:
        """Memory traffic per token outside the products: rows, scores, hidden vectors and optimizer."""
        rows = FLOAT32 * max_active(self.method, self.k) * (self.input_width + 5 * self.table_width)
        hidden = FLOAT32 * 6 * self.readers * self.hidden_width if self.encodes else 0
        return rows + hidden + SCORE_BYTES * self.num_experts + OPTIMIZER_BYTES * self.parameters // batch
