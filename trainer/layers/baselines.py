"""What an MxD is compared with, behind the same interface: transcoders and an autoencoder with a TopK gate.

    a = TopK(relu(x G + b_gate))
    y = a W_dec + b_out                         transcoder (arXiv 2406.11944)
    y = a W_dec + x W_skip + b_out              skip transcoder (arXiv 2501.18823)
    y = TopK(relu((y' - b_out) G + b_gate)) W_dec + b_out
                                                autoencoder (arXiv 2406.04093) of what the MLP wrote, y'

Here an expert (elsewhere a feature) adds the same direction whatever the input is.

Shapes: T tokens, I input width, O output width, N experts, K active.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from trainer.config import LayerConfig, Method
from trainer.layers.sparse import Reads, Routing, SparseLayer


class Transcoder(SparseLayer):
    """A TopK transcoder."""

    method: ClassVar[Method] = "transcoder"
    expert_tables: ClassVar[tuple[str, ...]] = ("gate.weight", "gate.bias", "direction_NO")

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        # W_dec of torch's Linear from N experts to O outputs, stored an expert a row.
        weight_ON = nn.Linear(config.num_experts, config.output_width, bias=False).weight.detach()
        self.direction_NO = nn.Parameter(weight_ON.T.contiguous())
        self.output_bias = nn.Parameter(torch.zeros(config.output_width))

    def mixing(self, routing: Routing) -> Tensor:
        """a W_dec, [T, O]: here all that the experts add."""
        return self.mix(routing, self.direction_NO)

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """Nothing, [T, 0]: the experts write by themselves."""
        return x_TI[:, :0]

    def decode_mixed(self, dense_TM: Tensor, mixing_TO: Tensor) -> Tensor:  # noqa: ARG002
        return mixing_TO + self.output_bias

    @property
    def table(self) -> Tensor:
        return self.direction_NO

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:  # noqa: ARG002
        """What the experts add, [T, O]; does not depend on the input."""
        return self.mixing(routing)

    def decode(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """The output [T, O] under ``routing``."""
        return self.contribution(dense_TM, routing) + self.output_bias

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:  # noqa: ARG002
        """‖a_n W_dec,n‖, [T, K]."""
        norms_N: Tensor = self.direction_NO.norm(dim=1)
        return norms_N[routing.indices_TK] * routing.coefficients_TK.abs()


class SkipTranscoder(Transcoder):
    """A TopK transcoder beside a linear map of the input; map and directions start at zero."""

    method: ClassVar[Method] = "skip-transcoder"

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.skip = nn.Linear(config.input_width, config.output_width, bias=False)
        nn.init.zeros_(self.skip.weight)
        nn.init.zeros_(self.direction_NO)

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """x W_skip, [T, O]."""
        skipped_TO: Tensor = self.skip(x_TI)
        return skipped_TO

    def decode_mixed(self, dense_TM: Tensor, mixing_TO: Tensor) -> Tensor:
        return super().decode_mixed(dense_TM, mixing_TO) + dense_TM

    def decode(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """The output [T, O] under ``routing``, the linear map included."""
        return super().decode(dense_TM, routing) + dense_TM


class Autoencoder(Transcoder):
    """A TopK autoencoder of the MLP's output: it says what the MLP wrote, not how. I is the output's width."""

    method: ClassVar[Method] = "autoencoder"
    reads: ClassVar[Reads] = "mlp-output"

    def route(self, x_TI: Tensor) -> Routing:
        """The experts of each token, from the MLP's output less the bias that is added again behind them."""
        return super().route(x_TI - self.output_bias)
