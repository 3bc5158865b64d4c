"""How many experts a layer gets, so that methods are compared at equal numbers of parameters.

The measure is the paper's: a TopK transcoder with 32 features for each value that the MLP reads. What the methods have,
for I inputs, H hidden values, O outputs, N experts:

    transcoder         N (I + 1 + O) + O
    skip transcoder    the same, and I O for its linear map (it keeps the transcoder's N, as in the paper)
    autoencoder        N (2 O + 1) + O
    MxD, ReLU-MxD …    N (I + 1 + O) + encoder + H O + O
    JumpReLU-MxD       N more, its thresholds
    low-rank MxD       N (I + 1 + R) + encoder + R (H + O) + O
    tensor-ring MxD    the same with R² in the place of R
    cross-layer MxD    the MxD's with S O in the place of O, matched with S transcoders, one for each MLP that it writes
    MOLT               N (I + 1) + S (I + O) + O, with S the sum of the ranks of its transforms
    PEER               N (I + 1 + O) + O, and four times the keys of a product-key gate

where an encoder has (I + 1) H, that of a gated linear unit twice as many. A gate that is not flat has other parameters
than N (I + 1): what a product-key gate saves goes into more experts, about twice as many.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

from trainer.config import Encoder, Method
from trainer.gate_config import FLAT, GateConfig, GateSizes, settled
from trainer.methods import HEADS, LEVELS, inner_width, transform_ranks

FEATURES_PER_INPUT = 32
LOW_RANK: frozenset[Method] = frozenset({"low-rank-mxd", "tensor-ring-mxd"})
"""Methods whose experts share a matrix up from the numbers that they pass through."""


@dataclass(frozen=True)
class Widths:
    """I, H and O of the MLP that is replaced, and R where experts have a rank that is chosen."""

    inputs: int
    hidden: int
    outputs: int
    rank: int
    span: int = 1
    """How many MLPs are replaced together."""


def matched_num_experts(method: Method, widths: Widths, encoder: Encoder, gate: GateConfig = FLAT) -> int:
    """N for which a layer has the parameters of a transcoder with 32 I features, or just fewer; at least 1.

    For the MxD of a plain MLP the paper's own counts (21,490 for GPT-2 where the exact match is 21,504) give the
    encoder as many biases as the transcoder has features; we keep to them, so that our runs compare with its figures.
    """
    features = FEATURES_PER_INPUT * widths.inputs
    if method == "cross-layer-mxd":
        return _matched_with_several(widths, encoder, gate)
    wanted = features * (widths.inputs + 1 + widths.outputs)
    if gate.gate != "flat":
        return _matched_with(gate, method, widths, encoder, wanted)
    if method == "peer":
        return _most(wanted, lambda count: count * _per_expert(method, widths) + HEADS * _keys(count, widths), 1)
    if method in ("transcoder", "skip-transcoder"):
        return features
    if method in ("mxd", "relu-mxd", "batch-topk-mxd") and encoder == "mlp":
        both = widths.inputs + widths.outputs
        return max(1, round(both * (features - widths.hidden) / (both + 1)))
    if method == "molt":
        return _matched_transforms(wanted, widths)
    return max(1, (wanted - _shared(method, widths, encoder)) // _per_expert(method, widths))


def _matched_with_several(widths: Widths, encoder: Encoder, gate: GateConfig) -> int:
    """N with which a layer that writes several MLPs has the parameters of as many transcoders, or just fewer."""
    features = FEATURES_PER_INPUT * widths.inputs
    wanted = widths.span * (features * (widths.inputs + 1 + widths.outputs))
    whole = replace(widths, outputs=widths.span * widths.outputs)
    if gate.gate != "flat":
        return _matched_with(gate, "mxd", whole, encoder, wanted)
    return max(1, (wanted - _shared("mxd", whole, encoder)) // _per_expert("mxd", whole))


def default_rank(method: Method, output_width: int) -> int:
    """R where none is chosen: low-rank and tensor-ring experts then pass through equally many numbers, O / 4."""
    if method == "molt":
        return max(1, output_width // 2)
    return max(1, math.isqrt(output_width // 4) if method == "tensor-ring-mxd" else output_width // 4)


def _matched_transforms(wanted: int, widths: Widths) -> int:
    """The most transforms that have no more than so many parameters, the output bias left out; at least 1."""
    ranks = transform_ranks(len(LEVELS), widths.rank)
    every = [widths.inputs + 1 + rank * (widths.inputs + widths.outputs) for rank in ranks]
    whole, left = divmod(wanted, sum(every))
    more = sum(total <= left for total in accumulate(every))
    return max(1, len(LEVELS) * whole + more)


def _matched_with(gate: GateConfig, method: Method, widths: Widths, encoder: Encoder, wanted: int) -> int:
    """The most experts with which a layer with this gate has at most so many parameters."""
    inputs = widths.outputs if method == "autoencoder" else widths.inputs
    written = _per_expert(method, widths) - inputs - 1
    room = wanted - (0 if "transcoder" in method else _shared(method, widths, encoder))

    counted = gate.model_copy(update={"chosen_groups": None})

    def parameters(num_experts: int) -> int:
        return GateSizes(settled(counted, num_experts, 1), num_experts, inputs).parameters + written * num_experts

    return _most(room, parameters, gate.groups or 1)


def _most(room: int, parameters: Callable[[int], int], least: int) -> int:
    """The largest N, from ``least`` on, that has no more than so many parameters; at least 1."""
    most = max(least + 1, room)
    return max(1, bisect_left(range(least, most), True, key=lambda number: parameters(number) > room) + least - 1)


def _keys(num_experts: int, widths: Widths) -> int:
    """Parameters of the product keys of one head of a PEER."""
    return GateSizes(GateConfig(gate="product-key"), num_experts, widths.inputs).parameters


def _per_expert(method: Method, widths: Widths) -> int:
    if method == "autoencoder":
        return 2 * widths.outputs + 1
    inner = inner_width(method, 1, widths.rank) if method in LOW_RANK else widths.outputs
    return widths.inputs + 1 + inner + (method == "jumprelu-mxd")


def _shared(method: Method, widths: Widths, encoder: Encoder) -> int:
    """Parameters that do not depend on N, the output bias left out: every method has one."""
    if method == "autoencoder":
        return 0
    encoders = (2 if encoder == "glu" else 1) * widths.hidden * (widths.inputs + 1)
    if method in LOW_RANK:
        return encoders + inner_width(method, 1, widths.rank) * (widths.hidden + widths.outputs)
    return encoders + widths.hidden * widths.outputs
