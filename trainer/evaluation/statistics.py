"""One pass over text up to the layer: how close a layer's output is, and what its experts do there.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, O output width, N experts, K active, M mixing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from trainer.activations import SEQUENCES_PER_FORWARD
from trainer.evaluation.intervals import Floats
from trainer.language_model import Capture, LanguageModel
from trainer.layers.sparse import Routing, SparseLayer
from trainer.metrics import SMALLEST_NORM, active_counts
from trainer.progress import Progress


@dataclass
class SequenceErrors:
    """Of each sequence, in order; every list is as long as there are sequences."""

    normalised_mse: list[float] = field(default_factory=list)
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖², and over the layers that are written."""
    of_layers: list[list[float]] = field(default_factory=list)
    """The same of each of these layers."""
    paper_error: list[float] = field(default_factory=list)
    """Mean over tokens and outputs of (ŷ − y)² / ‖y‖, the loss of the paper's code; it depends on the scale of y."""
    squared_error: list[float] = field(default_factory=list)
    """Sum over tokens of ‖ŷ − y‖²."""
    squared_norm: list[float] = field(default_factory=list)
    """Sum over tokens of ‖y‖²."""
    l0: list[float] = field(default_factory=list)
    """Active experts a token."""
    sums: list[Tensor] = field(default_factory=list)
    """[O], sum over tokens of y."""

    def add(self, output_TO: Tensor, target_TO: Tensor, routing: Routing, length: int, span: int) -> None:
        """Take a batch of sequences of ``length`` tokens, of a layer that writes the outputs of ``span`` MLPs."""
        errors_TS = _squares(output_TO - target_TO, span)
        norms_TS = _squares(target_TO, span)
        safe_TS = norms_TS.clamp_min(SMALLEST_NORM)
        paper_TS = errors_TS / safe_TS.sqrt() / (target_TO.shape[1] // span)
        active_T = (routing.coefficients_TK > 0).sum(1).float()
        of_layers = (errors_TS / safe_TS).unflatten(0, (-1, length)).mean(1)
        self.normalised_mse += of_layers.mean(1).tolist()
        self.of_layers += of_layers.tolist()
        self.paper_error += paper_TS.mean(1).reshape(-1, length).mean(1).tolist()
        self.squared_error += errors_TS.sum(1).reshape(-1, length).sum(1).tolist()
        self.squared_norm += norms_TS.sum(1).reshape(-1, length).sum(1).tolist()
        self.l0 += active_T.reshape(-1, length).mean(1).tolist()
        self.sums += list(target_TO.reshape(-1, length, target_TO.shape[1]).sum(1).double().cpu())

    def squared_deviation(self, mean_O: Tensor, length: int) -> Floats:
        """Of each sequence, the sum over tokens of ‖y − ȳ‖²."""
        sums_SO = torch.stack(self.sums)
        mean_O = mean_O.double().cpu()
        rest_S = length * mean_O.square().sum() - 2 * sums_SO @ mean_O
        deviation_S: Floats = np.array(self.squared_norm) + rest_S.numpy()
        return deviation_S


def _squares(values_TO: Tensor, span: int) -> Tensor:
    """Squared norm of each token's vector, [T, S]: one for each layer that is written."""
    squares_TS: Tensor = values_TO.square().unflatten(1, (span, -1)).sum(2)
    return squares_TS


@dataclass
class Statistics:
    """Sums over all tokens."""

    tokens: int
    errors: SequenceErrors
    output_O: Tensor
    """Mean output of the MLP, or of all that are replaced, side by side."""
    mixing_M: Tensor
    """Mean of what the routing decides."""
    mixing_variance_M: Tensor
    active_N: Tensor
    """Tokens on which an expert is active."""
    mass_N: Tensor
    """Sum of its coefficients."""
    norm_N: Tensor
    """Sum of the norms of what it adds."""


@torch.no_grad()
def gather(
    language_model: LanguageModel, layers: Sequence[int], layer: SparseLayer, ids_SL: Tensor, progress: Progress
) -> Statistics:
    """Read sequences up to the last of the layers that ``layer`` writes."""
    found = _Sums(layer)
    for part_SL in ids_SL.split(SEQUENCES_PER_FORWARD):
        whole = Capture.spanning(language_model.captures(layers, part_SL), layers)
        captured = Capture(*(value.float() for value in whole))
        found.add(captured, part_SL.shape[1])
        progress(found.tokens, ids_SL.numel(), "statistics of the experts")
    return found.statistics()


class _Sums:
    def __init__(self, layer: SparseLayer) -> None:
        count = layer.config.num_experts
        self.layer = layer
        self.tokens = 0
        self.errors = SequenceErrors()
        self.output_O = self.mixing_M = self.squares_M = torch.zeros((), dtype=torch.float64)
        self.active_N = torch.zeros(count, dtype=torch.int64)
        self.mass_N = torch.zeros(count, dtype=torch.float64)
        self.norm_N = torch.zeros(count, dtype=torch.float64)

    def add(self, captured: Capture, length: int) -> None:
        """Take a batch of tokens."""
        read_TI = captured.read_by(self.layer)
        answer = self.layer(read_TI)
        self.errors.add(answer.output_TO, captured.output_TO, answer.routing, length, self.layer.span)
        mixing_TM = self.layer.mixing(answer.routing).double()
        self.tokens += len(read_TI)
        self.output_O = self.output_O + captured.output_TO.double().sum(0).cpu()
        self.mixing_M = self.mixing_M + mixing_TM.sum(0).cpu()
        self.squares_M = self.squares_M + mixing_TM.square().sum(0).cpu()
        self.active_N += active_counts(answer.routing, len(self.active_N)).cpu()
        ids_P = answer.routing.indices_TK.reshape(-1).cpu()
        self.mass_N.index_add_(0, ids_P, answer.routing.coefficients_TK.reshape(-1).double().cpu())
        norms_TK = self.layer.contribution_norms(answer.dense_TM, answer.routing)
        self.norm_N.index_add_(0, ids_P, norms_TK.reshape(-1).double().cpu())

    def statistics(self) -> Statistics:
        """Means of what was added."""
        mean_M = self.mixing_M / self.tokens
        variance_M = (self.squares_M / self.tokens - mean_M.square()).clamp_min(0)
        return Statistics(
            tokens=self.tokens,
            errors=self.errors,
            output_O=(self.output_O / self.tokens).float(),
            mixing_M=mean_M.float(),
            mixing_variance_M=variance_M.float(),
            active_N=self.active_N,
            mass_N=self.mass_N,
            norm_N=self.norm_N,
        )
