"""Results of evaluations, and warnings: a low loss increase alone does not show that the experts do anything.

``asdict`` of a result is what the database, ``--json`` and the dashboard contain.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from html import escape
from typing import Literal, get_args

from mxd.trainer.config.layer import Method
from mxd.trainer.evaluation.evaluation_metrics import LIMITS, TABLE
from mxd.trainer.evaluation.jacobians import JacobianAgreement
from mxd.trainer.evaluation.metrics import Health, SharedExperts
from mxd.trainer.utils.bootstrap import Interval
from mxd.trainer.utils.display import ShortRepr, html_table, labelled_values

Level = Literal["alarm", "warning", "note"]

IDLE_ROUTING_SHARE = 0.05
"""Routing share below which the routing does nothing."""
DOMINANT_LOSS_RECOVERED = 0.5
"""Loss recovered by the always-on experts alone above which they raise an alarm."""
LARGE_K_ERROR = 0.1
"""Relative difference between the mean number of active experts and K that is a warning."""
MEAN_K_METHODS = ("batch-topk-mxd",)
"""Methods whose K is a target for the mean over tokens."""


@dataclass(frozen=True)
class EvaluationWarning:
    """A statement about an evaluated layer."""

    level: Level
    text: str


@dataclass(frozen=True)
class SharedExpertAblation(SharedExperts):
    """Shared experts and the effect of ablating them or all others, in nats per token."""

    loss_increase_without: float | None
    """Loss increase with the always-on experts ablated. None if no expert is always on."""
    loss_increase_only: float | None
    """Loss increase with all but the always-on experts ablated. None if no expert is always on."""


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
        """Main metrics with their 95 % intervals."""
        result = asdict(self)
        rows = [(escape(metric.title), *metric.value_and_interval(result)) for metric in TABLE]
        title = [(f"{self.run}, layer {self.layer}", f"{self.tokens:,} tokens of {self.text}")]
        return labelled_values(title) + html_table(("metric", "value", "95 %"), rows)


def find_warnings(result: Evaluation, loss_recovered_by_shared: float | None) -> tuple[EvaluationWarning, ...]:
    """Return the warnings about an evaluated layer, the most severe first. ``loss_recovered_by_shared`` is the loss
    recovered by the always-on experts alone; None if there are none."""
    levels = get_args(Level)
    found = sorted(_warnings(result, loss_recovered_by_shared), key=lambda each: levels.index(each[0]))
    return tuple(EvaluationWarning(*each) for each in found)


def _warnings(result: Evaluation, loss_recovered_by_shared: float | None) -> Iterator[tuple[Level, str]]:
    health, shared, recovered = result.health, result.shared_expert, result.loss_recovered_mean
    load, duplicates, ranks = health.load, health.near_duplicates, health.expert_ranks
    routing = result.routing_share if result.strict_routing_share is None else result.strict_routing_share
    if routing < IDLE_ROUTING_SHARE:
        yield (
            "alarm",
            f"The routing does nothing: the routing share is {routing:.1%}. With a constant mixing vector the layer "
            f"still recovers {1 - routing:.0%} of the loss. A low error says nothing about the experts.",
        )
    elif routing < LIMITS["routing_share"]:
        yield (
            "warning",
            f"The routing share is only {routing:.0%}. The rest of the layer's effect comes from a dense map that is "
            "the same for every token, so no expert explains it.",
        )
    if result.method == "mxd" and (varies := health.mixing_variation) < LIMITS["mixing_variation"]:
        yield "alarm", f"The mixing vector is nearly constant: it varies by {varies:.1%} over tokens."
    if recovered.high < LIMITS["loss_recovered_mean"]:
        yield "warning", f"The layer recovers only {recovered.value:.0%} of the loss."
    if loss_recovered_by_shared is not None:
        experts = f"Expert {shared.experts[0]} is" if shared.always_on == 1 else f"{shared.always_on} experts are"
        verb = "it recovers" if shared.always_on == 1 else "they recover"
        yield (
            "alarm" if loss_recovered_by_shared > DOMINANT_LOSS_RECOVERED else "warning",
            f"{experts} active on nearly every token, with {shared.coefficient_share:.0%} of the sum of all "
            f"activations. Alone {verb} {loss_recovered_by_shared:.0%} of the loss.",
        )
    if (dead := load.dead_share) > LIMITS["dead_share"]:
        yield "warning", f"{dead:.0%} of the experts are not active on any of {result.tokens:,} tokens."
    if (share := duplicates.share) > LIMITS["near_duplicates"]:
        yield "warning", f"{share:.0%} of {duplicates.compared:,} compared experts have a near-duplicate."
    if ranks is not None and (rank := ranks.normalized_rank) < LIMITS["normalized_rank"]:
        yield "warning", f"The expert matrices have {rank:.0%} of the full rank, mean of {ranks.sampled:,} experts."
    yield from _target_warnings(result.method, result.l0, result.k, result.tokens)


def _target_warnings(method: Method, l0: float, k: int, tokens: int) -> Iterator[tuple[Level, str]]:
    if method in MEAN_K_METHODS and abs(l0 - k) > LARGE_K_ERROR * k:
        yield "warning", f"{l0:.1f} experts are active per token instead of K = {k}, over {tokens:,} tokens."


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
