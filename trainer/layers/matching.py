"""How many experts a layer gets, so that methods are compared at equal numbers of parameters.

The measure is the paper's: a TopK transcoder with 32 features for each value that the MLP reads. What the methods have,
for I inputs, H hidden values, O outputs, N experts:

    transcoder         N (I + 1 + O) + O
    skip transcoder    the same, and I O for its linear map (it keeps the transcoder's N, as in the paper)
    autoencoder        N (2 O + 1) + O
    MxD, ReLU-MxD      N (I + 1 + O) + encoder + H O + O
    low-rank MxD       N (I + 1 + R) + encoder + R (H + O) + O

where an encoder has (I + 1) H, that of a gated linear unit twice as many.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainer.config import Encoder, Method

FEATURES_PER_INPUT = 32


@dataclass(frozen=True)
class Widths:
    """I, H and O of the MLP that is replaced, and R where experts are of low rank."""

    inputs: int
    hidden: int
    outputs: int
    rank: int


def matched_num_experts(method: Method, widths: Widths, encoder: Encoder) -> int:
    """N for which a layer has the parameters of a transcoder with 32 I features, or just fewer; at least 1.

    For the MxD of a plain MLP the paper's own counts (21,490 for GPT-2 where the exact match is 21,504) give the
    encoder as many biases as the transcoder has features; we keep to them, so that our runs compare with its figures.
    """
    features = FEATURES_PER_INPUT * widths.inputs
    if method in ("transcoder", "skip-transcoder"):
        return features
    if method in ("mxd", "relu-mxd") and encoder == "mlp":
        both = widths.inputs + widths.outputs
        return max(1, round(both * (features - widths.hidden) / (both + 1)))
    wanted = features * (widths.inputs + 1 + widths.outputs)
    return max(1, (wanted - _shared(method, widths, encoder)) // _per_expert(method, widths))


def _per_expert(method: Method, widths: Widths) -> int:
    if method == "autoencoder":
        return 2 * widths.outputs + 1
    return widths.inputs + 1 + (widths.rank if method == "low-rank-mxd" else widths.outputs)


def _shared(method: Method, widths: Widths, encoder: Encoder) -> int:
    """Parameters that do not depend on N, the output bias left out: every method has one."""
    if method == "autoencoder":
        return 0
    encoders = (2 if encoder == "glu" else 1) * widths.hidden * (widths.inputs + 1)
    if method == "low-rank-mxd":
        return encoders + widths.rank * (widths.hidden + widths.outputs)
    return encoders + widths.hidden * widths.outputs
