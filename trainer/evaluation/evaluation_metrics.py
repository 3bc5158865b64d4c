"""The metrics of an evaluation: one declaration per metric.

The Evaluate page, the verdict over several runs, the tables of ``mxd evaluate`` and ``mxd report``, notebooks and JSON
derive from these declarations. A metric that follows from stored results is one more entry. No import of PyTorch.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

Result = Mapping[str, Any]
"""``asdict`` of an ``Evaluation``, as stored. ``prompts`` and ``weight_bits`` may be added: the number of continued
prompts, and the bits per weight of weights that are stored rounded."""
Measured = Mapping[str, float | None]
"""Value, and the ends of its 95 % interval, ``low`` and ``high``, if it has one. A value of None was not measured."""
MetricUnit = Literal["nats", "share", "count", "plain"]
Section = Literal["faithfulness", "health"]
CONTINUATION_LENGTHS = (1, 2, 4, 8, 16, 32)
"""Lengths at which greedy continuations are compared, in tokens."""
ABOVE_ALL = "above 100 %, the frozen layer predicts worse than the MLP's mean output"
"""Meaning of a large routing share."""


@dataclass(frozen=True)
class Metric:
    """A metric of an evaluated run."""

    key: str
    """Name in JSON."""
    title: str
    unit: MetricUnit
    description: str | Callable[[Result], str]
    value: Callable[[Result], Measured | None] | None = None
    """Computes the metric, None where an evaluation lacks it. By default it is stored under its key."""
    group: str = ""
    """Heading of the metrics that belong together."""
    section: Section = "faithfulness"
    better: Literal["lower", "higher"] | None = None
    """None for a metric that no run should maximise."""
    limit: float | None = None
    """Value beyond which evaluations warn."""
    norm: str = ""
    """A good value, or the meaning of an end of the scale."""
    is_baseline: bool = False
    """True for the loss without the run, or without its routing."""
    term: str | None = None
    """Entry of the dashboard's glossary that explains the metric further."""
    headings: tuple[str, ...] = ()
    """Headings of its column in the tables of terminal and report, and of a second column with the interval."""
    form: str = ".4f"
    """Format in tables."""
    compares_runs: bool = False
    """True if the verdict over several runs shows the metric."""

    def measured(self, result: Result) -> Measured | None:
        """Return the metric of an evaluation, or of a joint one; None if it has none."""
        if self.value is not None:
            return self.value(result)
        found = result.get("intervals", {}).get(self.key, result.get(self.key))
        return found if found is None or isinstance(found, Mapping) else _plain(found)

    def described(self, result: Result) -> str:
        return self.description if isinstance(self.description, str) else self.description(result)

    def formatted(self, value: float | None) -> str:
        """Return a value in the format of tables; empty for None."""
        return "" if value is None else f"{value:{self.form}}"

    def value_and_interval(self, result: Result) -> tuple[str, str]:
        """Return both in the format of tables; empty where there is none."""
        measured = self.measured(result) or {}
        value, low, high = (self.formatted(measured.get(name)) for name in ("value", "low", "high"))
        return value, f"{low} to {high}" if low else ""


def _plain(value: float | None) -> Measured:
    return {"value": value, "low": None, "high": None}


def _at(*path: str) -> Callable[[Result], Measured | None]:
    """A value without interval inside a part of the result; not measured if that part is null."""

    def value(result: Result) -> Measured | None:
        found: Any = result
        for name in path:
            found = None if found is None else found.get(name)
        return _plain(found)

    return value


def _over_original(key: str) -> Callable[[Result], Measured | None]:
    return lambda result: _plain(result[key] - result["ce_original"])


def _continuation(result: Result, length: int) -> Measured | None:
    """Share of prompts, with its Wilson interval."""
    share = result.get("continuations", {}).get(str(length))
    if share is None:
        return None
    from mxd.trainer.utils.bootstrap import wilson_interval  # imports NumPy

    low, high = wilson_interval(share, result["prompts"])
    return {"value": share, "low": low, "high": high}


def _jacobian(result: Result, field: str) -> Measured | None:
    """A cosine of Jacobian-vector products, if they were measured."""
    found: Measured | None = (result.get("jacobian") or {}).get(field)
    return found


def _always_on(meaning: str) -> Callable[[Result], str]:
    """Description of a metric of the always-on experts, or of the densest expert if none is always on."""
    return lambda result: (
        f"always-on experts' {meaning}"
        if result["shared_expert"]["always_on"]
        else f"the densest expert's {meaning}; no expert is always on"
    )


def _if_always_on(meaning: str) -> Callable[[Result], str]:
    """Description of a metric that needs an always-on expert."""
    return lambda result: (
        meaning if result["shared_expert"]["always_on"] else f"not measured, as no expert is always on: {meaning}"
    )


def _sample_of(count: int, result: Result) -> str:
    everything: int = result["num_experts"]
    return (
        f"all {count:,} experts" if count == everything else f"a random sample of {count:,} of {everything:,} experts"
    )


def _compared(meaning: str) -> Callable[[Result], str]:
    """Description of a metric of the experts that are compared with all others."""
    return lambda result: (
        f"{meaning}; {_sample_of(result['health']['near_duplicates']['compared'], result)}, each compared with all "
        "others"
    )


def _of_matrices(meaning: str, over: str) -> Callable[[Result], str]:
    """Description of a metric of the experts' matrices; ``{}`` in ``over`` is replaced by the sampled experts."""

    def description(result: Result) -> str:
        ranks, bits = result["health"]["expert_ranks"], result.get("weight_bits")
        if not ranks:
            return f"{meaning}not measured"
        weights = f"; weights as stored, rounded to {bits} bits" if bits else ""
        return meaning + over.format(_sample_of(ranks["sampled"], result)) + weights

    return description


def _section(section: Section, groups: Mapping[str, tuple[Metric, ...]]) -> tuple[Metric, ...]:
    return tuple(replace(it, section=section, group=group) for group, metrics in groups.items() for it in metrics)


FAITHFULNESS = _section(
    "faithfulness",
    {
        "Next-token loss": (
            Metric(
                "loss_increase",
                "Loss increase",
                "nats",
                "mean rise of the next-token loss when the run replaces the MLP, in nats per token",
                better="lower",
                term="loss_increase_of_run",
                headings=("ΔCE", "95 %"),
                form="+.4f",
                compares_runs=True,
            ),
            Metric(
                "perplexity_ratio",
                "Perplexity ratio",
                "plain",
                "perplexity with the run divided by the original model's, e to the power of the loss increase; 1 is no "
                "loss",
                value=lambda result: {end: math.exp(nats) for end, nats in result["loss_increase"].items()},
                better="lower",
            ),
            *(
                Metric(
                    f"loss_increase_{name}",
                    f"Loss increase, {title}",
                    "nats",
                    f"baseline: {meaning}",
                    value=_over_original(f"ce_{name}"),
                    is_baseline=True,
                    term="ablation" if "ablated" in title else None,
                )
                for name, title, meaning in (
                    ("zeroed", "MLP zero-ablated", "the MLP's output is set to zero"),
                    ("mean_ablated", "MLP mean-ablated", "the MLP's output is replaced by its mean over tokens"),
                    ("frozen", "mixing frozen at its median", "every token mixes the experts in the same way"),
                )
            ),
            Metric(
                "loss_original",
                "Loss, original",
                "nats",
                "next-token loss of the original model, in nats per token",
                value=_at("ce_original"),
                term="nats",
            ),
            *(
                Metric(
                    f"loss_recovered_{kind}",
                    f"Loss recovered vs {kind} ablation",
                    "share",
                    f"1 minus the loss increase divided by that of {kind} ablation",
                    better="higher",
                    term="loss_recovered",
                    headings=("recovered",) if kind == "mean" else (),
                    form=".1%",
                    limit=0.5 if kind == "mean" else None,
                    compares_runs=kind == "mean",
                )
                for kind in ("zero", "mean")
            ),
        ),
        "Routing": (
            *(
                Metric(
                    key,
                    title,
                    "share",
                    f"loss increase with the mixing frozen at {constant}, as a share of that of mean-ablating the MLP; "
                    + ABOVE_ALL,
                    term=key,
                    headings=(heading,),
                    form=".2f",
                    compares_runs=key == "strict_routing_share",
                    limit=0.5,
                )
                for key, title, heading, constant in (
                    ("routing_share", "Routing share", "routing", "its median over tokens"),
                    ("strict_routing_share", "Strict routing share", "strict", "the constant that fits the MLP best"),
                )
            ),
            Metric(
                "decoder_share",
                "Decoder share",
                "share",
                "loss increase with the shared dense path frozen at its median, so that each expert adds a fixed "
                "direction, as a share of that of mean-ablating the MLP",
                term="decoder_share",
            ),
            Metric(
                "l0", "L0", "count", "mean number of active experts per token", term="l0", headings=("L0",), form=".1f"
            ),
        ),
        "Next-token distribution": (
            Metric(
                "kl",
                "KL divergence",
                "nats",
                "between the next-token distributions of the original model and of the model with the run, in nats per "
                "token",
                better="lower",
                term="kl",
                headings=("KL",),
                compares_runs=True,
            ),
            Metric(
                "agreement",
                "Top-1 agreement",
                "share",
                "share of tokens on which the models with and without the run have the same most probable next token",
                better="higher",
                term="top1_agreement",
            ),
        ),
        "Same greedy continuation": (
            *(
                Metric(
                    f"continuation_{length}",
                    f"Next {length} tokens" if length > 1 else "Next token",
                    "share",
                    lambda result: (
                        f"share of {result['prompts']:,} prompts with the same greedy continuation with and "
                        "without the run"
                    ),
                    value=partial(_continuation, length=length),
                    better="higher",
                    term="continuations",
                )
                for length in CONTINUATION_LENGTHS
            ),
        ),
        "Reconstruction of the MLP's output": (
            Metric(
                "variance_explained",
                "Variance explained",
                "share",
                "1 minus the variance of the layer's error divided by that of the MLP's output; predicting the mean "
                "output scores 0",
                better="higher",
                term="variance_explained",
                headings=("explained",),
                form=".1%",
                compares_runs=True,
            ),
            Metric(
                "normalized_mse",
                "Normalised MSE",
                "plain",
                "mean of ‖ŷ − y‖² / ‖y‖² of the run's output ŷ and the MLP's y; predicting zero scores 1",
                better="lower",
                term="normalised_mse",
                headings=("norm. MSE",),
                compares_runs=True,
            ),
            Metric(
                "paper_error",
                "MSE as in the paper's code",
                "plain",
                "mean of (ŷ − y)² / ‖y‖; depends on the scale of y",
                better="lower",
            ),
        ),
        "Local behaviour": (
            *(
                Metric(
                    f"jacobian_{field}",
                    title,
                    "plain",
                    description,
                    value=partial(_jacobian, field=field),
                    term="jacobian_agreement" if field == "random" else None,
                )
                for field, title, description in (
                    (
                        "random",
                        "Jacobian agreement",
                        lambda result: (
                            "mean cosine of the Jacobian-vector products of layer and MLP; "
                            f"{result['jacobian']['tokens']:,} tokens, "
                            f"{result['jacobian']['directions']} random directions each"
                        ),
                    ),
                    ("data", "Jacobian agreement, data", "the same along differences between held-out inputs"),
                    (
                        "random_control",
                        "Jacobian control",
                        "as the agreement, with the MLP's Jacobian at another token",
                    ),
                    ("data_control", "Jacobian control, data", "the same along differences between held-out inputs"),
                )
            ),
        ),
    },
)

HEALTH = _section(
    "health",
    {
        "Use of the experts": (
            Metric(
                "dead_share",
                "Inactive on the evaluated text",
                "share",
                lambda result: f"active on none of {result['tokens']:,} tokens; dead ones are counted on the index",
                better="lower",
                headings=("inactive",),
                form=".0%",
                limit=0.5,
            ),
            Metric(
                "effective_experts",
                "Effective experts",
                "count",
                lambda result: (
                    f"equally used experts with the same entropy, of {result['num_experts']:,}; on "
                    f"{result['tokens']:,} tokens"
                ),
                value=_at("health", "load", "effective_experts"),
            ),
            *(
                Metric(f"load_{name}", title, "plain", meaning, value=_at("health", "load", name))
                for name, title, meaning in (
                    ("entropy", "Entropy of the load", "entropy of the experts' shares of all activations, in bits"),
                    (
                        "gini",
                        "Gini of the load",
                        "inequality of use: 0 if all experts are used equally, 1 if one has all activations",
                    ),
                )
            ),
            Metric(
                "max_density",
                "Highest density",
                "share",
                "share of tokens of the densest expert",
                value=_at("health", "load", "max_density"),
                term="density",
                norm="good: below 50 %",
            ),
        ),
        "Densest experts": (
            Metric(
                "always_on",
                "Always-on experts",
                "count",
                "active on nearly every token",
                value=_at("shared_expert", "always_on"),
                norm="good: 0",
            ),
            Metric(
                "always_on_activation",
                "Share of activation of the densest",
                "share",
                _always_on("share of all summed activations"),
                value=_at("shared_expert", "coefficient_share"),
            ),
            Metric(
                "always_on_output",
                "Share of output norm of the densest",
                "share",
                _always_on("share of the summed output norms"),
                value=_at("shared_expert", "output_share"),
                term="output_norm",
            ),
            *(
                Metric(
                    f"loss_increase_{kind}_always_on",
                    f"Loss increase with{kept} always-on experts",
                    "nats",
                    _if_always_on(f"nats per token with {ablated} ablated"),
                    value=_at("shared_expert", f"loss_increase_{kind}"),
                )
                for kind, kept, ablated in (
                    ("without", "out", "the always-on experts"),
                    ("only", " only", "all other experts"),
                )
            ),
        ),
        "Similarity and rank": (
            Metric(
                "mixing_variation",
                "Variation of the mixing vector",
                "plain",
                "standard deviation over tokens divided by the mean; 0 is the same mixing on every token",
                value=_at("health", "mixing_variation"),
                limit=0.05,
                norm="good: above 0.05",
            ),
            Metric(
                "near_duplicates",
                "Near-duplicate experts",
                "share",
                _compared("cosine of both gate and scaling vectors at least 0.95"),
                value=_at("health", "near_duplicates", "share"),
                better="lower",
                limit=0.05,
                norm="good: below 5 %",
            ),
            *(
                Metric(
                    f"nearest_{kind}",
                    f"Nearest {kind}, median cosine",
                    "plain",
                    _compared(f"cosine of {kind} vectors with the most similar expert"),
                    value=_at("health", "near_duplicates", f"{kind}_median"),
                    norm="1: the same",
                )
                for kind in ("gate", "scaling")
            ),
            Metric(
                "normalized_rank",
                "Normalised rank",
                "plain",
                _of_matrices("rank divided by the largest possible rank; ", "mean over {}"),
                value=_at("health", "expert_ranks", "normalized_rank"),
                better="higher",
                limit=0.95,
                norm="good: above 0.95",
            ),
            Metric(
                "stable_rank",
                "Stable rank",
                "plain",
                _of_matrices("effective number of output directions; ", "mean over {}"),
                value=_at("health", "expert_ranks", "stable_rank"),
                term="stable_rank",
                norm="1: one direction",
            ),
            Metric(
                "min_singular_value",
                "Smallest singular value",
                "plain",
                _of_matrices("", "relative to the largest, minimum over {}"),
                value=_at("health", "expert_ranks", "min_singular_value"),
                norm="0: rank is lost",
            ),
            Metric(
                "min_scaling",
                "Smallest |c|",
                "plain",
                _of_matrices(
                    "smallest absolute value in any scaling vector; ", "0 removes an output dimension of the expert"
                ),
                value=_at("health", "expert_ranks", "min_scaling"),
                norm="0: an output is lost",
            ),
        ),
    },
)

METRICS = (*FAITHFULNESS, *HEALTH)
"""All metrics in the order of screens and tables."""
TABLE = tuple(metric for metric in METRICS if metric.headings)
"""Columns of the tables of terminal and report."""
LIMITS = {metric.key: metric.limit for metric in METRICS if metric.limit is not None}
HEADINGS = tuple(heading for metric in TABLE for heading in metric.headings)


def measured_in(result: Result) -> Iterator[tuple[Metric, Measured]]:
    """Yield the metrics that an evaluation of one run has, with their values."""
    for metric in METRICS:
        measured = metric.measured(result)
        if measured is not None:
            yield metric, measured


def table_cells(result: Result) -> tuple[str, ...]:
    """Return the cells under ``HEADINGS``; empty where a joint evaluation has no such metric."""
    return tuple(cell for metric in TABLE for cell in metric.value_and_interval(result)[: len(metric.headings)])


def routing_warning(run: str, share: float, tokens: int) -> str | None:
    """Return a sentence if most of a layer's effect does not depend on its experts, from its routing share, the strict
    one if it was measured."""
    if share >= LIMITS["routing_share"]:
        return None
    return (
        f"Routing share {share:.2f} of {run}, on {tokens:,} tokens: most of the layer’s effect does not depend on "
        "which experts are active."
    )
