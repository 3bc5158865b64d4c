"""Layers beside the MxD, layer classes by method, and loading of saved layers.

Transcoders and an autoencoder with a TopK gate, as baselines. An expert, elsewhere called a feature or latent, always
adds the same direction, whatever the input.

    a = TopK(relu(x G + b_gate))
    y = a W_dec + b_out                         transcoder (arXiv 2406.11944)
    y = a W_dec + x W_skip + b_out              skip transcoder (arXiv 2501.18823)
    y = TopK(relu((y' - b_out) G + b_gate)) W_dec + b_out
                                                autoencoder (arXiv 2406.04093) of the MLP's output y'

BatchTopK (arXiv 2412.06410) on an MxD: K active experts per token on average, more for tokens that need them.

    training:   keep the T K largest of all scores of T tokens
    inference:  a = relu(s) [s > θ],  with θ the running mean of the smallest score kept in training

At inference, the experts of a token do not depend on the other tokens of the batch. θ is one number for all experts,
saved with the weights. A token has at most 4 K experts, which bounds the width of a routing.

Shapes: T tokens, I input width, O output width, N experts, K active experts, C candidates per token.
"""

from bisect import bisect_right
from importlib import import_module
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mxd.trainer.config.layer import (
    WEIGHTS_FILE,
    LayerConfig,
    Method,
    max_active,
    method_traits,
    read_layer_config,
    transform_ranks,
)
from mxd.trainer.errors import UserError
from mxd.trainer.layers.mxd import LayerInput, MxD, Routing, SparseLayer, drawn_weight, read_weights
from mxd.trainer.layers.ops import Shards


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


THRESHOLD_UPDATE = 0.02
"""Weight of each step in the running mean, which covers about 50 steps."""
UNSET = -1.0
"""Threshold before training."""


class BatchTopK(MxD):
    """MxD whose gate selects over a batch in training, and by a threshold at inference."""

    method: ClassVar[Method] = "batch-topk-mxd"
    expert_tables: ClassVar[tuple[str, ...]] = ()
    threshold: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.register_buffer("threshold", torch.full((1,), UNSET))

    def route(self, x_TI: Tensor) -> Routing:
        """Select the experts of each token, largest gate activation first; unused columns are 0."""
        candidates = min(max_active(self.method, self.config.k), self.config.num_experts)
        activations_TC, indices_TC = self.gate.choose(x_TI, candidates)
        threshold = self._batch_threshold(activations_TC.detach()) if self.training else self.threshold
        return Routing(activations_TC * (activations_TC >= threshold), indices_TC)

    def _batch_threshold(self, activations_TC: Tensor) -> Tensor:
        """The T K-th largest gate activation of a batch, [1]. Updates the running mean in a training step."""
        count = len(activations_TC) * min(self.config.k, activations_TC.shape[1])
        smallest = activations_TC.flatten().topk(count, sorted=True).values[-1:]
        if torch.is_grad_enabled():
            mean = self.threshold + THRESHOLD_UPDATE * (smallest - self.threshold)
            self.threshold.copy_(torch.where(self.threshold < 0, smallest, mean))
        return smallest


class DenseGate(SparseLayer):
    """Mixin: a gate that activates every expert with a positive score. The subclass provides the decoder."""

    expert_tables: ClassVar[tuple[str, ...]] = ()

    def activations(self, x_TI: Tensor) -> Tensor:
        """Gate activations of all experts, [T, N]; 0 if inactive."""
        return F.relu(self.gate(x_TI))

    def route(self, x_TI: Tensor) -> Routing:
        """All experts, ordered by id; the gate activation of inactive experts is 0."""
        activations_TN = self.activations(x_TI)
        ids_N = torch.arange(self.config.num_experts, device=x_TI.device)
        return Routing(activations_TN, ids_N.expand_as(activations_TN))

    def mixing(self, routing: Routing) -> Tensor:
        """Gate activations times the table with one row per expert."""
        # Gathering all rows per token would need far more memory than one matrix product.
        if routing.indices_TK.shape[1] != self.config.num_experts:
            return self.mix(routing, self.table)
        # In any order of the columns.
        dense_TN = routing.activations_TK.new_zeros(routing.activations_TK.shape)
        return dense_TN.scatter_add(1, routing.indices_TK, routing.activations_TK) @ self.table


class ReluMxD(DenseGate, MxD):
    """MxD whose gate activates every expert with a positive score, as in the paper's ablation of the top-k."""

    method: ClassVar[Method] = "relu-mxd"


class FixedThresholds(DenseGate):
    """Mixin: a gate with a fixed threshold per expert, as in imported transcoders."""

    threshold_N: Tensor

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.register_buffer("threshold_N", torch.zeros(config.num_experts))

    def activations(self, x_TI: Tensor) -> Tensor:
        scores_TN: Tensor = self.gate(x_TI)
        return F.relu(scores_TN) * (scores_TN > self.threshold_N)


class JumpReluTranscoder(FixedThresholds, Transcoder):
    method: ClassVar[Method] = "jumprelu-transcoder"


class JumpReluSkipTranscoder(FixedThresholds, SkipTranscoder):
    method: ClassVar[Method] = "jumprelu-skip-transcoder"


class Molt(SparseLayer):
    """Mixture of low-rank transforms. As in an MxD, the last matrix is initialised to zero."""

    method: ClassVar[Method] = "molt"
    mixes_outputs: ClassVar[bool] = False
    expert_tables: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: LayerConfig) -> None:
        super().__init__(config)
        self.ranks = transform_ranks(config.num_experts, self.required_rank())
        total = sum(self.ranks)
        self.reader = nn.Linear(config.input_width, total, bias=False)
        self.writer = nn.Linear(total, config.output_width, bias=False)
        self.output_bias = nn.Parameter(torch.zeros(config.output_width))
        nn.init.zeros_(self.writer.weight)

    def dense_output(self, x_TI: Tensor) -> Tensor:
        """x V of all transforms, [T, S]."""
        read_TS: Tensor = self.reader(x_TI)
        return read_TS

    def mixing(self, routing: Routing) -> Tensor:
        """Gate activation of each column's transform, [T, S]."""
        activations_TK, indices_TK = routing
        dense_TN = activations_TK.new_zeros(len(activations_TK), self.config.num_experts)
        dense_TN = dense_TN.scatter_add(1, indices_TK, activations_TK)
        # One part for each run of equal ranks. A gather would copy its index to the device in every step.
        runs = [(rank, len(list(run))) for rank, run in groupby(self.ranks)]
        parts = dense_TN.split([count for _, count in runs], dim=1)
        return torch.cat([part.repeat_interleave(rank, 1) for part, (rank, _) in zip(parts, runs, strict=True)], dim=1)

    def contribution(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        added_TO: Tensor = self.writer(self.mixing(routing) * dense_TM)
        return added_TO

    def decode_mixed(self, dense_TM: Tensor, mixing_TM: Tensor) -> Tensor:
        output_TO: Tensor = self.writer(mixing_TM * dense_TM) + self.output_bias
        return output_TO

    @property
    def output_projection(self) -> Tensor:
        return self.writer.weight

    def contribution_norms(self, dense_TM: Tensor, routing: Routing) -> Tensor:
        """‖a_t x V_t U_t‖, [T, K]."""
        columns = zip(dense_TM.split(self.ranks, dim=1), self.writer.weight.split(self.ranks, dim=1), strict=True)
        norms_TN = torch.stack([(z_TR @ weight_OR.T).norm(dim=1) for z_TR, weight_OR in columns], dim=1)
        return norms_TN.gather(1, routing.indices_TK) * routing.activations_TK.abs()

    @property
    def table(self) -> Tensor:
        """Output direction with the largest gain of each transform, times the gain, [N, O]; computed on every
        access."""
        reads, writes = self.reader.weight.split(self.ranks), self.writer.weight.split(self.ranks, dim=1)
        rows = []
        for v_RI, u_OR in zip(reads, writes, strict=True):
            triangle_RR = torch.linalg.qr(v_RI.T, mode="r").R
            left, values, _ = torch.linalg.svd(u_OR @ triangle_RR.T, full_matrices=False)
            rows.append(left[:, 0] * values[0])
        return torch.stack(rows)

    def expert_matrix(self, expert: int) -> Tensor:
        """V_t U_t, [I, O]; the transform's output is x V_t U_t."""
        first = sum(self.ranks[:expert])
        end = first + self.ranks[expert]
        return self.reader.weight[first:end].T @ self.writer.weight[:, first:end].T


TRAINED = (MxD, BatchTopK, Transcoder, SkipTranscoder, Autoencoder, Molt)
IMPORTED = (ReluMxD, JumpReluTranscoder, JumpReluSkipTranscoder)
_CLASSES: dict[Method, type[SparseLayer]] = {each.method: each for each in (*TRAINED, *IMPORTED)}


def register_layers(method: Method, layer_class: type[SparseLayer]) -> None:
    _CLASSES[method] = layer_class


def build_layer(config: LayerConfig, shards: Shards | None = None) -> SparseLayer:
    """Build a layer with random weights, or this process's slice of it. The slices are never in memory together. Raises
    UserError if the method's experts cannot be sharded, or there are fewer of them than processes."""
    if config.method not in _CLASSES:
        import_module(method_traits(config.method).module)
    layer_class = _CLASSES[config.method]
    if shards is None:
        return layer_class(config)
    if not layer_class.expert_tables:
        raise UserError(f"The experts of a {config.method} cannot be sharded. Omit --parallel=experts.")
    if shards.world_size > config.num_experts:
        raise UserError(f"{config.num_experts} experts cannot be sharded over {shards.world_size} processes.")
    return layer_class(config, shards)


@torch.inference_mode(mode=False)  # weights created in inference mode could never be trained again
def load_layer(folder: Path) -> SparseLayer:
    """Load a layer that ``SparseLayer.save`` wrote, in float32 on the CPU. Raises UserError if the folder holds no
    layer, or a damaged one."""
    config = read_layer_config(folder)
    with torch.device("meta"):
        layer = build_layer(config)
    layer.load_state_dict(read_weights(folder / WEIGHTS_FILE, layer), assign=True)
    return layer.eval()


FEATURES_PER_INPUT = 32


def matched_num_experts(config: LayerConfig, mlp_input_width: int) -> int:
    """Return the number of experts that matches a transcoder with 32 features per input value; at least 1.

    For the MxD of a plain MLP, the paper's own counts (21,490 for GPT-2, where the exact match is 21,504) give the
    encoder as many biases as the transcoder has features. We use those counts, so that results are comparable.
    The N and K in the config are ignored. An autoencoder does not read the MLP's input, whose width is given.
    """
    features = FEATURES_PER_INPUT * mlp_input_width
    if config.method == "skip-transcoder":  # gets the transcoder's N, as in the paper
        config = config.model_copy(update={"method": "transcoder"})
    if config.method == "transcoder":
        return features
    if config.encoder == "mlp" and config.method in ("mxd", "batch-topk-mxd"):
        widths = config.input_width + config.output_width
        return max(1, round(widths * (features - config.hidden_width) / (widths + 1)))
    # The largest N with at most as many parameters as the transcoder, output bias excluded.
    budget = features * (mlp_input_width + 1 + config.output_width)

    def parameters(num_experts: int) -> int:
        candidate = config.model_copy(update={"num_experts": num_experts, "k": 1})
        with torch.device("meta"):
            return build_layer(candidate).num_parameters - config.output_width

    upper = 1
    while parameters(upper) <= budget:
        upper *= 2
    return max(1, bisect_right(range(1, upper), budget, key=parameters))
