"""Transcoders and an autoencoder with a TopK gate, as baselines for an MxD.

    a = TopK(relu(x G + b_gate))
    y = a W_dec + b_out                         transcoder (arXiv 2406.11944)
    y = a W_dec + x W_skip + b_out              skip transcoder (arXiv 2501.18823)
    y = TopK(relu((y' - b_out) G + b_gate)) W_dec + b_out
                                                autoencoder (arXiv 2406.04093) of the MLP's output y'

An expert, elsewhere called a feature or latent, always adds the same direction, whatever the input.

Shapes: T tokens, I input width, O output width, N experts, K active experts.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from mxd.trainer.config import LayerConfig, Method
from mxd.trainer.layers.base import LayerInput, Routing, SparseLayer, drawn_weight
from mxd.trainer.layers.sharding import Shards


class Transcoder(SparseLayer):
    method: ClassVar[Method] = "transcoder"
    expert_tables: ClassVar[tuple[str, ...]] = ("gate.weight", "gate.bias", "direction_NO")

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        # Initialised as torch's Linear from N experts to O outputs, stored with one row per expert.
        weight_ON = drawn_weight(config.num_experts, config.output_width, columns=self.own_experts)
        self.direction_NO = nn.Parameter(weight_ON.T.contiguous())
        self.output_bias = nn.Parameter(torch.zeros(config.output_width))

    def mixing(self, routing: Routing) -> Tensor:
        """a W_dec, [T, O]: everything that the experts add."""
        return self.mix(routing, self.direction_NO)

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """Empty, [T, 0]: the experts need nothing but the routing."""
        return x_TI[:, :0]

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:  # noqa: ARG002
        return mixing_TM + self.output_bias

    @property
    def table(self) -> Tensor:
        return self.direction_NO

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:  # noqa: ARG002
        """Contribution of the experts, [T, O]; independent of the input."""
        return self.mixing(routing)

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:  # noqa: ARG002
        """‖a_n W_dec,n‖, [T, K]."""
        norms_N: Tensor = self.direction_NO.norm(dim=1)
        return norms_N[routing.indices_TK] * routing.activations_TK.abs()


class SkipTranscoder(Transcoder):
    """TopK transcoder plus a linear map of the input. Map and directions are initialised to zero."""

    method: ClassVar[Method] = "skip-transcoder"

    def __init__(self, config: LayerConfig, shards: Shards | None = None) -> None:
        super().__init__(config, shards)
        self.skip = nn.Linear(config.input_width, config.output_width, bias=False)
        nn.init.zeros_(self.skip.weight)
        nn.init.zeros_(self.direction_NO)

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """x W_skip, [T, O]."""
        skipped_TO: Tensor = self.skip(x_TI)
        return skipped_TO

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        return super().decode_mixed(dense_TM, mixing_TM) + dense_TM


class Autoencoder(Transcoder):
    """TopK autoencoder of the MLP's output. It describes what the MLP writes, not how; I is the output width."""

    method: ClassVar[Method] = "autoencoder"
    reads: ClassVar[LayerInput] = "mlp-output"

    def route(self, x_TI: Tensor) -> Routing:
        """Select the experts of each token from the MLP's output minus the output bias."""
        return super().route(x_TI - self.output_bias)
