"""One pass over text up to the layer: how close a layer's output is, and what its experts do there.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, O output width, N experts, K active, M mixing.
"""

from __future__ import annotations

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
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖²."""
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

    def add(self, output_TO: Tensor, target_TO: Tensor, routing: Routing, length: int) -> None:
        """Take a batch of sequences of ``length`` tokens."""
        errors_T = (output_TO - target_TO).square().sum(1)
        norms_T = target_TO.square().sum(1)
        safe_T = norms_T.clamp_min(SMALLEST_NORM)
        active_T = (routing.coefficients_TK > 0).sum(1).float()
        self.normalised_mse += (errors_T / safe_T).reshape(-1, length).mean(1).tolist()
        self.paper_error += (errors_T / safe_T.sqrt() / target_TO.shape[1]).reshape(-1, length).mean(1).tolist()
        self.squared_error += errors_T.reshape(-1, length).sum(1).tolist()
        self.squared_norm += norms_T.reshape(-1, length).sum(1).tolist()
        self.l0 += active_T.reshape(-1, length).mean(1).tolist()
        self.sums += list(target_TO.reshape(-1, length, target_TO.shape[1]).sum(1).double().cpu())

    def squared_deviation(self, mean_O: Tensor, length: int) -> Floats:
        """Of each sequence, the sum over tokens of ‖y − ȳ‖²."""
        sums_SO = torch.stack(self.sums)
        mean_O = mean_O.double().cpu()
        rest_S = length * mean_O.square().sum() - 2 * sums_SO @ mean_O
        deviation_S: Floats = np.array(self.squared_norm) + rest_S.numpy()
        return deviation_S


@dataclass
class Statistics:
    """Sums over all tokens."""

    tokens: int
    errors: SequenceErrors
    output_O: Tensor
    """Mean output of the MLP."""
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
    language_model: LanguageModel, layer_index: int, layer: SparseLayer, ids_SL: Tensor, progress: Progress
) -> Statistics:
    """Read sequences up to the layer."""
    found = _Sums(layer)
    for part_SL in ids_SL.split(SEQUENCES_PER_FORWARD):
        captured = Capture(*(value.float() for value in language_model.capture(layer_index, part_SL)))
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
        self.errors.add(answer.output_TO, captured.output_TO, answer.routing, length)
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
