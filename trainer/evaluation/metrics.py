"""Reconstruction errors and expert statistics from one pass over a text, agreement of greedy continuations, and health
of the experts: load balance, near-duplicates, matrix ranks, shared experts and variation of the mixing.

**Best constant mixing:** the best output of a layer without routing, where every token gets the same mixing. A median
mixing is a weak control for a layer with centred mixing, whose median is nearly zero: frozen there, even a layer that
could do without routing outputs a constant. The best constant mixing has no such blind spot.

Some layers mix outputs, so that each entry is fitted by itself. Others mix a hidden vector z, so that each output of y
= (c * z) U depends on all entries of c; they are fitted together.

Shapes: S sequences of a batch, L tokens of a sequence, T = S * L tokens, I input width, H hidden width, O output width,
N experts, K active, E sampled experts, M entries of the mixing vector, P prompts.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import Tensor

from mxd.trainer.data.activations import SEQUENCES_PER_FORWARD
from mxd.trainer.evaluation.evaluation_metrics import CONTINUATION_LENGTHS
from mxd.trainer.language_model.model import LanguageModel, MlpActivations
from mxd.trainer.language_model.residuals import Residuals
from mxd.trainer.layers.mxd import (
    SMALLEST_NORM,
    ExpertRanks,
    MxD,
    Routing,
    SparseLayer,
    active_counts,
    effective_number,
    gini,
    measure_ranks,
    spatial_median,
)
from mxd.trainer.utils.bootstrap import Floats
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.devices import in_float64

SMALLEST_VARIANCE = 1e-12
"""Variance of a dense output below which it counts as constant, so that only the bias is fitted."""
_ZERO = torch.zeros((), dtype=torch.float64)
MAX_JOINT_WIDTH = 4096
"""Largest number of entries that are fitted together. The fit keeps a matrix of M x M numbers."""
RIDGE = 1e-9
"""Weight that keeps the joint fit unique, relative to the mean of the matrix's diagonal."""


@dataclass(frozen=True)
class ConstantMixing:
    """Mixing and bias that replace the routing of every token."""

    mixing_M: Tensor
    bias_O: Tensor
    """Added to the layer's own bias."""

    def output(self, layer: SparseLayer, dense_TM: Tensor) -> Tensor:
        """Output of the layer with this mixing for every token, [T, O]."""
        mixing_M, bias_O = (values.to(dense_TM) for values in (self.mixing_M, self.bias_O))
        return layer.decode_mixed(dense_TM, mixing_M.expand(len(dense_TM), -1)) + bias_O


@dataclass
class ConstantMixingFit:
    """Weighted least squares for each output, from sums over batches. The weight of a token is 1 / ‖y‖², as in the
    normalised MSE, so that a few tokens with massive activations do not decide the fit.
    """

    layer: SparseLayer
    sums: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Weighted sums over tokens of 1, b, r, b² and b r, [5, O], with b the output per unit of mixing and r the rest."""

    def add(self, dense_TM: Tensor, target_TO: Tensor) -> None:
        target_TO = in_float64(target_TO)
        weights_T1 = _weights(target_TO)
        mixing_TO = dense_TM.new_zeros(len(dense_TM), self.layer.config.output_width)
        unmixed_TO = self.layer.decode_mixed(dense_TM, mixing_TO)
        b_TO = in_float64(self.layer.decode_mixed(dense_TM, mixing_TO + 1) - unmixed_TO)
        unmixed_TO = in_float64(unmixed_TO)
        r_TO = target_TO - unmixed_TO
        terms = (torch.ones_like(b_TO), b_TO, r_TO, b_TO.square(), b_TO * r_TO)
        self.sums = self.sums + torch.stack([(weights_T1 * term_TO).sum(dim=0) for term_TO in terms]).cpu()

    def best(self) -> ConstantMixing:
        """Constant mixing and bias with the smallest normalised MSE over the added tokens."""
        b_O, r_O, squares_O, products_O = self.sums[1:] / self.sums[0]
        variance_O = squares_O - b_O.square()
        covariance_O = products_O - b_O * r_O
        is_constant_O = variance_O <= SMALLEST_VARIANCE * squares_O
        mixing_O = torch.where(is_constant_O, 0.0, covariance_O / variance_O.clamp_min(torch.finfo(b_O.dtype).tiny))
        return ConstantMixing(mixing_O.float(), (r_O - mixing_O * b_O).float())


@dataclass
class JointMixingFit:
    """Weighted least squares for all outputs together, with the same weights."""

    layer: SparseLayer
    projection_OM: Tensor
    """U, the map from the mixed hidden vector to the outputs."""
    weight: float = 0.0
    """Sum of the weights."""
    hidden_M: Tensor = _ZERO
    rest_O: Tensor = _ZERO
    """Weighted sums of z, and of the target without the layer's own bias and constant mixing."""
    products_MM: Tensor = _ZERO
    projected_M: Tensor = _ZERO
    """Weighted sums of z z^T, and of z times the rest's products with the rows of U."""

    def add(self, dense_TM: Tensor, target_TO: Tensor) -> None:
        unmixed_TO = self.layer.decode_mixed(dense_TM, torch.zeros_like(dense_TM))
        target_TO, unmixed_TO, hidden_TM = map(in_float64, (target_TO, unmixed_TO, dense_TM))
        weights_T1, rest_TO = _weights(target_TO), target_TO - unmixed_TO
        weighted_TM = weights_T1 * hidden_TM
        self.weight += float(weights_T1.sum())
        self.hidden_M = self.hidden_M + weighted_TM.sum(dim=0).cpu()
        self.rest_O = self.rest_O + (weights_T1 * rest_TO).sum(dim=0).cpu()
        self.products_MM = self.products_MM + (weighted_TM.T @ hidden_TM).cpu()
        self.projected_M = self.projected_M + (weighted_TM * (rest_TO @ self._map(rest_TO))).sum(dim=0).cpu()

    def best(self) -> ConstantMixing:
        """Constant mixing and bias with the smallest normalised MSE over the added tokens."""
        map_OM, hidden_M, rest_O = self._map(self.hidden_M), self.hidden_M / self.weight, self.rest_O / self.weight
        covariance_MM = self.products_MM / self.weight - torch.outer(hidden_M, hidden_M)
        matrix_MM = covariance_MM * (map_OM.T @ map_OM)
        target_M = self.projected_M / self.weight - hidden_M * (rest_O @ map_OM)
        ridge = RIDGE * matrix_MM.diagonal().mean().clamp_min(torch.finfo(torch.float64).tiny)
        mixing_M = torch.linalg.solve(matrix_MM + ridge * torch.eye(len(matrix_MM), dtype=torch.float64), target_M)
        return ConstantMixing(mixing_M.float(), (rest_O - map_OM @ (mixing_M * hidden_M)).float())

    def _map(self, like: Tensor) -> Tensor:
        return self.projection_OM.detach().to(like)


def constant_mixing_fit(layer: SparseLayer) -> ConstantMixingFit | JointMixingFit | None:
    """The fit for a layer; None if its mixing is not element-wise, or too wide."""
    if layer.mixes_outputs:
        return ConstantMixingFit(layer)
    projection_OM = layer.output_projection
    is_too_wide = projection_OM is None or projection_OM.shape[1] > MAX_JOINT_WIDTH
    return None if projection_OM is None or is_too_wide else JointMixingFit(layer, projection_OM)


def _weights(target_TO: Tensor) -> Tensor:
    """Weight of each token, 1 / ‖y‖², [T, 1]."""
    return 1 / target_TO.square().sum(dim=1, keepdim=True).clamp_min(SMALLEST_NORM)


ERRORS = ("normalized_mse", "paper_error", "l0", "squared_error", "squared_norm")
"""Errors of a sequence: means over its tokens of ‖ŷ − y‖² / ‖y‖² and, over the outputs too, of (ŷ − y)² / ‖y‖, the mean
number of active experts, and the sums of ‖ŷ − y‖² and of ‖y‖². A perfect layer has a ``normalized_mse`` of 0, and one
that predicts zero has 1; ``paper_error`` is the loss of the paper's code, which depends on the scale of y."""


def sequence_errors(output_TO: Tensor, target_TO: Tensor, routing: Routing, length: int) -> Tensor:
    """``ERRORS`` of each sequence of ``length`` tokens, [5, S]."""
    errors_T, norms_T = (output_TO - target_TO).square().sum(1), target_TO.square().sum(1)
    safe_T = norms_T.clamp_min(SMALLEST_NORM)
    paper_T = errors_T / safe_T.sqrt() / target_TO.shape[1]
    active_T = (routing.activations_TK > 0).sum(1).float()
    means = [values_T.reshape(-1, length).mean(1) for values_T in (errors_T / safe_T, paper_T, active_T)]
    return torch.stack([*means, *(values_T.reshape(-1, length).sum(1) for values_T in (errors_T, norms_T))])


MEDIAN_TOKENS, MEDIAN_STEPS = 8192, 20
"""Number of tokens for the spatial medians of mixing and dense output, and of Weiszfeld iterations."""


@dataclass
class LayerStatistics:
    """Statistics of a sparse layer over all tokens of a text."""

    tokens: int
    errors: dict[str, Floats]
    """``ERRORS`` -> values of the sequences, [S]."""
    deviation_S: Floats
    """Sum over the tokens of each sequence of ‖y − ȳ‖², with the mean output ȳ."""
    output_O: Tensor
    """Mean output of the MLP."""
    mixing_M: Tensor
    """Mean of the mixing vector: aC for an MxD, aW_dec for a transcoder."""
    typical_mixing_M: Tensor
    """Spatial median of the mixing vector, which no small group of tokens decides."""
    best_constant: ConstantMixing | None
    """Constant mixing that fits the MLP best; None for methods whose mixing is not element-wise."""
    typical_dense_M: Tensor
    """Spatial median of the dense output; empty for methods without one."""
    mixing_variance_M: Tensor
    """Variance of the mixing vector."""
    active_N: Tensor
    """Number of active tokens of each expert."""
    mass_N: Tensor
    """Sum of each expert's activations."""
    norm_N: Tensor
    """Sum of the norms of each expert's contributions."""


@dataclass(frozen=True)
class EvaluatedText:
    """Sequences on which layers of a language model are evaluated."""

    language_model: LanguageModel
    ids_SL: Tensor
    callbacks: Callbacks
    residuals: Residuals
    """Residual streams of the text, so that blocks before a layer are computed once for all its runs."""


@torch.no_grad()
def collect_statistics(text: EvaluatedText, layer: int, sparse_layer: SparseLayer) -> LayerStatistics:
    """Run the sparse layer on the MLP inputs of a text, and collect its errors and statistics."""
    tokens, length, fit = 0, text.ids_SL.shape[1], constant_mixing_fit(sparse_layer)
    errors, sums = list[Tensor](), list[Tensor]()
    output_O = mixing_M = squares_M = _ZERO
    active_N = torch.zeros(sparse_layer.config.num_experts, dtype=torch.int64)
    mass_N, norm_N = torch.zeros(2, len(active_N), dtype=torch.float64)
    first_mixings, first_dense = list[Tensor](), list[Tensor]()
    for number, part_SL in enumerate(text.ids_SL.split(SEQUENCES_PER_FORWARD)):
        with text.residuals.continued(layer, number * SEQUENCES_PER_FORWARD, part_SL) as ids_RL:
            activations = text.language_model.capture(layer, ids_RL)
        captured = MlpActivations(*(value.float() for value in activations))
        input_TI = captured.inputs_for(sparse_layer)
        result = sparse_layer(input_TI)
        errors.append(sequence_errors(result.output_TO, captured.output_TO, result.routing, length).cpu().double())
        sums.append(captured.output_TO.unflatten(0, (-1, length)).sum(1).cpu().double())
        mixing_TM = in_float64(sparse_layer.mixing(result.routing))
        if tokens < MEDIAN_TOKENS:
            first_mixings.append(mixing_TM.cpu())
            first_dense.append(result.dense_TM.cpu())
        if fit is not None:
            fit.add(result.dense_TM, captured.output_TO)
        tokens += len(input_TI)
        output_O = output_O + in_float64(captured.output_TO).sum(0).cpu()
        mixing_M = mixing_M + mixing_TM.sum(0).cpu()
        squares_M = squares_M + mixing_TM.square().sum(0).cpu()
        active_N += active_counts(result.routing, len(active_N)).cpu()
        ids_P = result.routing.indices_TK.reshape(-1).cpu()
        mass_N.index_add_(0, ids_P, result.routing.activations_TK.reshape(-1).cpu().double())
        norms_TK = sparse_layer.contribution_norms(result.dense_TM, result.routing)
        norm_N.index_add_(0, ids_P, norms_TK.reshape(-1).cpu().double())
        text.callbacks.on_progress(tokens, text.ids_SL.numel(), "statistics of the experts")
    mean_M, mean_O = mixing_M / tokens, (output_O / tokens).float()
    measured = dict(zip(ERRORS, torch.cat(errors, dim=1).numpy(), strict=True))
    wide_O = mean_O.double()
    correction_S = length * wide_O.square().sum() - 2 * torch.cat(sums) @ wide_O
    return LayerStatistics(
        tokens=tokens,
        errors=measured,
        deviation_S=measured["squared_norm"] + correction_S.numpy(),
        output_O=mean_O,
        mixing_M=mean_M.float(),
        typical_mixing_M=_median(first_mixings),
        best_constant=None if fit is None else fit.best(),
        typical_dense_M=_median(first_dense),
        mixing_variance_M=(squares_M / tokens - mean_M.square()).clamp_min(0).float(),
        active_N=active_N,
        mass_N=mass_N,
        norm_N=norm_N,
    )


def _median(batches: list[Tensor]) -> Tensor:
    values_TM = torch.cat(batches)
    if not values_TM.shape[1]:
        return values_TM.new_zeros(0)
    return spatial_median(values_TM, values_TM.mean(dim=0), steps=MEDIAN_STEPS).float()


def continuation_agreement(text: EvaluatedText, layers: Mapping[int, SparseLayer], prompts: int) -> dict[int, float]:
    """Share of prompts whose greedy continuations with and without the layers have the same first n tokens, by n.

    The prompts are the first halves of the first sequences. Lengths beyond the context length are omitted.
    """
    language_model = text.language_model
    prompts_PL = text.ids_SL[:prompts, : text.ids_SL.shape[1] // 2].to(language_model.device)
    max_length = language_model.max_tokens - prompts_PL.shape[1]
    lengths = [length for length in CONTINUATION_LENGTHS if length <= max_length]
    if not lengths or not len(prompts_PL):
        return {}
    original_PL = _greedy_continuation(language_model, prompts_PL, lengths[-1])
    with language_model.replace(layers):
        replaced_PL = _greedy_continuation(language_model, prompts_PL, lengths[-1])
    same_PL = (original_PL == replaced_PL).cumprod(dim=1).float()
    return {length: same_PL[:, length - 1].mean().item() for length in lengths}


@torch.no_grad()
def _greedy_continuation(language_model: LanguageModel, prompts_PL: Tensor, tokens: int) -> Tensor:
    """Greedy continuation of each prompt, [P, tokens], not stopped by special tokens."""
    cache, ids_PL = None, prompts_PL
    for _ in range(tokens):
        logits_PV, cache = language_model.next_logits(ids_PL, cache)
        ids_PL = torch.cat([ids_PL, logits_PV.argmax(-1, keepdim=True)], dim=1)
    return ids_PL[:, prompts_PL.shape[1] :]


DUPLICATE_COSINE = 0.95
"""Cosine similarity from which two experts are near-duplicates."""
MAX_COMPARED = 4096
"""Number of random experts compared with all others. Comparing all pairs of 86,015 experts would take minutes."""
MAX_SAMPLED = 32
"""Number of random experts whose matrices are decomposed."""
LORENZ_POINTS = 101
_CHUNK = 1024


@dataclass(frozen=True)
class LoadBalance:
    """Distribution of load over the experts. An expert's load is its share of all activations."""

    dead_share: float
    """Share of experts that are active on no token."""
    entropy: float
    """Entropy of the load, in bits; log2 N if all experts are equally active."""
    effective_experts: float
    """2 to the power of the entropy."""
    gini: float
    """Gini coefficient of the load: 0 if all experts are equally active, 1 if one expert has all activations."""
    max_density: float
    """Largest activation density of an expert."""
    lorenz_curve: tuple[float, ...]
    """Share of all activations of the least active 0, 1, … 100 % of the experts."""
    density_edges: tuple[float, ...]
    """Edges of the density histogram's bins, equally spaced on a logarithmic scale."""
    density_counts: tuple[int, ...]
    """Number of experts in each bin of the density histogram. Dead experts are in none."""


@dataclass(frozen=True)
class NearDuplicates:
    """Cosine similarity of experts to their nearest neighbours, over a random sample of experts."""

    compared: int
    """Number of sampled experts."""
    share: float
    """Share of sampled experts with a near-duplicate: the same neighbour at a cosine of 0.95 or more for gate and
    scaling."""
    gate_median: float
    """Median cosine of gate vectors to their nearest neighbours."""
    gate_max: float
    scaling_median: float
    """Median cosine of scaling vectors to their nearest neighbours."""
    scaling_max: float


@dataclass(frozen=True)
class SampledExpertRanks(ExpertRanks):
    """Ranks of the matrices of a random sample of active experts."""

    sampled: int
    """Number of sampled experts."""


@dataclass(frozen=True)
class Health:
    load: LoadBalance
    near_duplicates: NearDuplicates
    expert_ranks: SampledExpertRanks | None
    """None for methods whose experts are vectors, and if no expert is active."""
    mixing_variation: float
    """Standard deviation of the mixing vector over tokens relative to its mean, each as a norm over entries."""


def measure_load(active_N: Tensor, tokens: int) -> LoadBalance:
    """Measure the load balance from the number of active tokens of each expert, [N]."""
    counts_N = np.sort(active_N.double().numpy())
    load = counts_N / max(counts_N.sum(), 1.0)
    density = counts_N / tokens
    effective = effective_number(active_N)
    lowest = np.floor(np.log10(1 / tokens))
    edges = np.logspace(lowest, 0, round(-lowest) * 4 + 1)
    cumulative = np.concatenate([[0.0], load.cumsum()])
    points = np.linspace(0, len(load), LORENZ_POINTS)
    return LoadBalance(
        dead_share=float((counts_N == 0).mean()),
        entropy=float(np.log2(effective)),
        effective_experts=effective,
        gini=gini(active_N),
        max_density=float(density[-1]),
        lorenz_curve=tuple(np.interp(points, np.arange(len(cumulative)), cumulative).tolist()),
        density_edges=tuple(edges.tolist()),
        density_counts=tuple(np.histogram(density[density > 0].clip(edges[0], 1), edges)[0].tolist()),
    )


@torch.no_grad()
def measure_health(sparse_layer: SparseLayer, statistics: LayerStatistics, seed: int) -> Health:
    """Measure a layer's health from its statistics on a text and from its weights."""
    generator = torch.Generator().manual_seed(seed)
    spread = statistics.mixing_variance_M.double().sum().sqrt()
    level = statistics.mixing_M.double().norm()
    near_duplicates = _near_duplicates(sparse_layer, generator)
    active_E = torch.nonzero(statistics.active_N).flatten()
    chosen_E = active_E[torch.randperm(len(active_E), generator=generator)[:MAX_SAMPLED]]
    ranks = measure_ranks(sparse_layer, chosen_E.tolist()) if isinstance(sparse_layer, MxD) and len(chosen_E) else None
    return Health(
        load=measure_load(statistics.active_N, statistics.tokens),
        near_duplicates=near_duplicates,
        expert_ranks=None if ranks is None else SampledExpertRanks(sampled=len(chosen_E), **asdict(ranks)),
        mixing_variation=float(spread / level) if level > 0 else float("nan"),
    )


def _near_duplicates(sparse_layer: SparseLayer, generator: torch.Generator) -> NearDuplicates:
    count = sparse_layer.config.num_experts
    chosen_E = torch.randperm(count, generator=generator)[:MAX_COMPARED].to(sparse_layer.table.device)
    gate_E, gate_ids_E = _nearest(sparse_layer.gate.rows(slice(None)), chosen_E)
    scaling_E, scaling_ids_E = _nearest(sparse_layer.table, chosen_E)
    both_E = (gate_E >= DUPLICATE_COSINE) & (scaling_E >= DUPLICATE_COSINE) & (gate_ids_E == scaling_ids_E)
    return NearDuplicates(
        compared=len(chosen_E),
        share=both_E.float().mean().item(),
        gate_median=gate_E.median().item(),
        gate_max=gate_E.max().item(),
        scaling_median=scaling_E.median().item(),
        scaling_max=scaling_E.max().item(),
    )


def _nearest(rows_NW: Tensor, chosen_E: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine similarity and index of the nearest other row, [E] each, for the chosen rows."""
    unit_NW = torch.nn.functional.normalize(rows_NW, dim=1)
    cosines, ids = [], []
    for part_C in chosen_E.split(_CHUNK):
        cosines_CN = unit_NW[part_C] @ unit_NW.T
        cosines_CN[torch.arange(len(part_C)), part_C] = -1.0
        best = cosines_CN.max(dim=1) if cosines_CN.shape[1] > 1 else cosines_CN.min(dim=1)
        cosines.append(best.values)
        ids.append(best.indices)
    return torch.cat(cosines).clamp(-1, 1).cpu(), torch.cat(ids).cpu()


@dataclass(frozen=True)
class SharedExperts:
    """Always-on experts or, if there are none, the most active expert."""

    experts: tuple[int, ...]
    always_on: int
    """Number of always-on experts."""
    density: float
    """Density of the most active expert."""
    coefficient_share: float
    """Their share of the sum of all activations."""
    output_share: float
    """Their share of the summed norms of all experts' contributions."""


def find_shared_experts(statistics: LayerStatistics, threshold: float) -> SharedExperts:
    """Find the always-on experts. ``threshold`` is the density from which an expert is always on."""
    density_N = statistics.active_N.double() / statistics.tokens
    always_on_E = torch.nonzero(density_N >= threshold).flatten()
    experts_E = always_on_E if len(always_on_E) else density_N.argmax().unsqueeze(0)
    return SharedExperts(
        experts=tuple(experts_E.tolist()),
        always_on=len(always_on_E),
        density=density_N.max().item(),
        coefficient_share=_share_of_sum(statistics.mass_N, experts_E),
        output_share=_share_of_sum(statistics.norm_N, experts_E),
    )


def _share_of_sum(values_N: Tensor, chosen_E: Tensor) -> float:
    total = values_N.sum().item()
    return values_N[chosen_E].sum().item() / total if total > 0 else float("nan")
