"""Results of evaluations. ``asdict`` of a result is what the database, ``--json`` and the dashboard contain."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from mxd.trainer.config import Method
from mxd.trainer.evaluation.health import Health, SharedExperts
from mxd.trainer.evaluation.jacobians import JacobianAgreement
from mxd.trainer.evaluation.warnings import EvaluationWarning
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.html import html_table, labelled_values
from mxd.trainer.utils.printable import ShortRepr


@dataclass(frozen=True)
class SharedExpertAblation(SharedExperts):
    """Shared experts and the effect of ablating them or all others, in nats per token."""

    loss_increase_without: float | None
    """Loss increase with the always-on experts ablated. None if no expert is always on."""
    loss_increase_only: float | None
    """Loss increase with all but the always-on experts ablated. None if no expert is always on."""


SHOWN_INTERVALS = ("variance_explained", "normalized_mse", "routing_share", "kl")
"""Metrics that a notebook shows beside the loss."""


@dataclass(frozen=True, repr=False)
class Evaluation(ShortRepr):
    """Evaluation of one run on one text. Losses and KL divergences are in nats per token."""

    run: str
    method: Method
    language_model: str
    layer: int
    num_experts: int
    k: int
    """K at which the run was evaluated."""
    trained_k: int
    """K with which the run was trained."""
    min_k: int | None
    """Smallest K that the run was trained for; None if it was trained for one K."""
    parameters: int
    seed: int
    trained_tokens: int
    text: str
    tokens: int
    sequences: int
    seen_text: bool
    """True if the run was trained on this text, which makes the results optimistic."""
    ce_original: float
    """Loss of the original model."""
    ce_replaced: float
    """Loss with the MLP replaced by the layer."""
    ce_zeroed: float
    """Loss with the MLP's output replaced by zeros."""
    ce_mean_ablated: float
    """Loss with the MLP's output replaced by its mean over tokens."""
    ce_frozen: float
    """Loss with the layer's mixing vector replaced by its spatial median over tokens."""
    loss_increase: Interval
    """``ce_replaced`` minus ``ce_original``."""
    loss_recovered_zero: Interval
    """Share of the loss increase of zeroing the MLP that the layer avoids."""
    loss_recovered_mean: Interval
    """Share of the loss increase of mean-ablating the MLP that the layer avoids."""
    kl: float
    """KL divergence of the next-token distribution from the original one."""
    agreement: float
    """Share of tokens with the same most probable next token."""
    normalized_mse: float
    """Mean over tokens of ‖ŷ − y‖² / ‖y‖². 0 is a perfect layer; 1 is the score of predicting zero."""
    paper_error: float
    """Mean over tokens and outputs of (ŷ − y)² / ‖y‖, the loss of the paper's code. It depends on the scale of y."""
    variance_explained: float
    """1 minus the fraction of the output's variance around its mean that is unexplained."""
    l0: float
    """Mean number of active experts per token."""
    dead_share: float
    """Share of experts that are active on none of the tokens."""
    routing_share: float
    """Loss increase of freezing the mixing vector at its spatial median, divided by that of mean-ablating the MLP. 0:
    the routing does nothing."""
    intervals: dict[str, Interval]
    """Intervals of kl, agreement, normalized_mse, paper_error, variance_explained, l0, routing_share, ce_frozen and,
    if measured, strict_routing_share and decoder_share."""
    continuations: dict[str, float]
    """Share of greedy continuations with the same first n tokens as the original's, by n."""
    shared_expert: SharedExpertAblation
    health: Health
    warnings: tuple[EvaluationWarning, ...]
    strict_routing_share: float | None = None
    """As the routing share, with the constant mixing that fits the MLP best instead of the median. None if the
    method has no element-wise mixing, or a very wide one, or if the evaluation is older than this measure."""
    decoder_share: float | None = None
    """Loss increase of freezing the dense output, z D of an MxD, at its spatial median, divided by that of
    mean-ablating the MLP. Each expert then adds a fixed direction. None if the method has no dense output, or the
    evaluation is older than this measure."""
    jacobian: JacobianAgreement | None = None
    """Agreement of the Jacobians of layer and MLP; None if it was not measured."""

    def _repr_html_(self) -> str:
        """Main figures with their 95 % intervals."""
        intervals = {
            "loss increase (nats per token)": self.loss_increase,
            "loss recovered": self.loss_recovered_mean,
            **{name.replace("_", " "): self.intervals[name] for name in SHOWN_INTERVALS},
        }
        rows = [
            (escape(name), f"{interval.value:.4f}", f"{interval.low:.4f} to {interval.high:.4f}")
            for name, interval in intervals.items()
        ]
        rows.append(("dead experts", f"{self.dead_share:.1%}", ""))
        title = [(f"{self.run}, layer {self.layer}", f"{self.tokens:,} tokens of {self.text}")]
        return labelled_values(title) + html_table(("figure", "value", "95 %"), rows)


@dataclass(frozen=True)
class JointEvaluation:
    """Evaluation of several runs that replace their layers' MLPs at the same time. Losses are in nats per token."""

    run: str
    """Names of the runs, joined by `` + ``."""
    runs: tuple[str, ...]
    text: str
    tokens: int
    ce_original: float
    """Loss of the original model."""
    ce_replaced: float
    """Loss with all MLPs replaced by the layers."""
    ce_zeroed: float
    """Loss with all MLPs' outputs replaced by zeros."""
    ce_mean_ablated: float
    """Loss with all MLPs' outputs replaced by their means over tokens."""
    loss_increase: Interval
    summed_loss_increase: float
    """Sum of the loss increases of the runs on their own."""
    loss_recovered_mean: Interval
    """Share of the loss increase of mean-ablating all MLPs that the layers avoid."""
    kl: float
    """KL divergence of the next-token distribution from the original one."""
    agreement: float
    """Share of tokens with the same most probable next token."""


@dataclass(frozen=True)
class AddedLayer:
    """Evaluation of a run together with the runs of all lower layers. Losses are in nats per token."""

    run: str
    layer: int
    loss_increase: Interval
    kl: float
    """KL divergence of the next-token distribution from the original one."""
    agreement: float
    """Share of tokens with the same most probable next token."""
    summed_loss_increase: float
    """Sum of the loss increases of these runs on their own."""


@dataclass(frozen=True)
class LayerByLayer:
    """Evaluation of runs whose layers are replaced one after another."""

    run: str
    """``layer by layer: `` and the names of the runs, joined by `` + ``."""
    runs: tuple[str, ...]
    fine_tuned: bool
    """True if all runs were created by ``mxd finetune``."""
    text: str
    tokens: int
    ce_original: float
    """Loss of the original model, in nats per token."""
    steps: tuple[AddedLayer, ...]
