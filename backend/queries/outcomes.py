"""Outcomes of comparing a run with each neighbour, question by question: win, tie or lose.

A neighbour is another evaluated run of the same MLP or, in the benchmark, its neurons or a gate without training. Every
difference is the run minus the neighbour. It is a tie if its 95 % interval contains zero.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.queries.automatic_labels import FEATURES
from mxd.backend.queries.evaluations import arrow, evaluated_mlps, loss_differences
from mxd.backend.queries.probes import BENCHMARK_METRIC
from mxd.backend.queries.report_text import cell, method_title, plural, run_page
from mxd.backend.schemas.runs import Cell, Head, Row, Table
from mxd.trainer.evaluation.benchmark_results import Benchmark
from mxd.trainer.evaluation.evaluation_metrics import METRICS, Measured, Metric
from mxd.trainer.language_model.sources import display_name
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, IndexRecord, RecurrenceRecord, RunRecord
from mxd.trainer.utils.bootstrap import NORMAL_97_5, Interval
from mxd.trainer.utils.display import listed, signed

MIN_EXPERTS = 2
"""Number of experts that a standard error needs."""
Outcome = Literal["win", "tie", "lose"]


MEANS_OVER_EXPERTS = (
    Metric(
        "label_score",
        "Label score",
        "plain",
        "balanced accuracy of automatic labels on held-out examples, mean over experts; 0.5 is chance",
        better="higher",
        term="automatic_label",
    ),
    Metric(
        "token_entropy",
        "Token entropy",
        "plain",
        "bits of the tokens on which an expert is active",
        better="lower",
        term="entropy",
    ),
    Metric(
        "dead_in_index",
        "Dead experts",
        "share",
        "share of experts that are active on no indexed token",
        better="lower",
        term="dead_share",
    ),
)
"""Metrics of the index and of labels. They say how easily experts are described, and depend on the indexed text."""
RECOVERED, LOSS = "loss_recovered_mean", "loss_increase"
COMPARED = (
    *sorted((metric for metric in METRICS if metric.compares_runs), key=lambda it: it.key != RECOVERED),
    *MEANS_OVER_EXPERTS,
)
"""Metrics of the verdict over several runs, the plainest first."""


def _mean(value: float, variance: float, count: int) -> Measured:
    margin = NORMAL_97_5 * math.sqrt(variance / count)
    return {"value": value, "low": value - margin, "high": value + margin}


def means_over_experts(session: Session, run: RunRecord) -> dict[str, Measured]:
    """Return ``MEANS_OVER_EXPERTS`` of a run; empty without an index."""
    if session.get(IndexRecord, run.id) is None:
        return {}
    expert, label = ExpertRecord, AutomaticLabelRecord
    active = (expert.run_id == run.id, expert.active_tokens > 0)
    # Only one labeller, so that runs are comparable. Imported labels have no test examples and no score.
    scored = (label.run_id == run.id, label.labeller == FEATURES, label.test_examples > 0)
    columns = {"label_score": (label.balanced_accuracy, scored), "token_entropy": (expert.entropy, active)}
    means = {}
    count = 0
    for key, (column, conditions) in columns.items():
        query = select(func.count(column), func.avg(column), func.avg(column * column)).where(*conditions)
        count, mean, mean_square = session.execute(query).one()
        if count >= MIN_EXPERTS:
            means[key] = _mean(mean, max(0.0, mean_square - mean**2) * count / (count - 1), count)
    return means | {"dead_in_index": dead_in_index(run, count)}


def dead_in_index(run: RunRecord, active_experts: int) -> Measured:
    """Return the share of experts that are active on no indexed token."""
    dead = 1 - active_experts / run.num_experts
    return _mean(dead, dead * (1 - dead), run.num_experts)


def leader(measured: Mapping[str, Measured], better: Literal["lower", "higher"]) -> str | None:
    """Return the run that leads in a metric with an interval apart from all others; None if none does."""
    if len(measured) < 2 or any(one.get("low") is None for one in measured.values()):
        return None
    sign = -1 if better == "lower" else 1
    best, *others = sorted(measured, key=lambda name: -sign * ends(measured[name])[0])
    _, low, high = ends(measured[best])
    limits = [ends(measured[other])[1:] for other in others]
    apart = all(high < other_low if sign < 0 else low > other_high for other_low, other_high in limits)
    return best if apart else None


class Compared(NamedTuple):
    """An evaluated run with its newest result and its metrics by key."""

    run: RunRecord
    result: Mapping[str, Any]
    metrics: Mapping[str, Measured]


class Evidence(NamedTuple):
    """Sources of the answers."""

    session: Session
    own: Compared
    others: Sequence[Compared]
    """Other evaluated runs of the same MLP."""
    benchmark: Benchmark | None


Differences = Mapping[str, Interval]
"""Neighbour -> the run minus it."""


def _losses(evidence: Evidence) -> Differences:
    return loss_differences(evidence.session, evidence.own.run, [other.run for other in evidence.others])


def _of_means(mean: Callable[[Compared], Measured | None], evidence: Evidence) -> Differences:
    """Differences of means whose errors do not depend on one another, with the interval of Newcombe (1998)."""
    own, others = mean(evidence.own), {other.run.name: mean(other) for other in evidence.others}
    found = {}
    for name, other in others.items():
        if own is None or other is None:
            continue
        (value, low, high), (other_value, other_low, other_high) = ends(own), ends(other)
        below = math.hypot(value - low, other_high - other_value)
        above = math.hypot(high - value, other_value - other_low)
        difference = value - other_value
        found[name] = Interval(difference, difference - below, difference + above)
    return found


def ends(measured: Measured) -> tuple[float, float, float]:
    """Return value, low and high; a value without interval is its own ends."""
    value = measured["value"]
    assert value is not None
    low, high = measured.get("low"), measured.get("high")
    return value, value if low is None else low, value if high is None else high


def _recurrence(evidence: Evidence) -> Differences:
    def mean(one: Compared) -> Measured | None:
        found = func.count().filter(RecurrenceRecord.firing_low > RecurrenceRecord.firing_chance)
        query = select(found, func.count()).where(RecurrenceRecord.run_id == one.run.id)
        same, count = evidence.session.execute(query).one()
        return _mean(same / count, same / count * (1 - same / count), count) if count else None

    return _of_means(mean, evidence)


def _probes(units: int, evidence: Evidence) -> Differences:
    """Differences of the benchmark, which has those of its first run."""
    if evidence.benchmark is None or not evidence.benchmark.scores:
        return {}
    mine = [one for one in evidence.benchmark.differences if one.units == units and one.metric == BENCHMARK_METRIC]
    first, own = evidence.benchmark.scores[0].subject, evidence.own.run.name
    if own == first:
        return {one.subject: one.mean for one in mine}
    reverse = next((one.mean for one in mine if one.subject == own), None)
    return {first: Interval(-reverse.value, -reverse.high, -reverse.low)} if reverse else {}


@dataclass(frozen=True)
class Question:
    """A question on which runs are compared."""

    key: str
    title: str
    detail: str
    """The measure, and how it is compared."""
    better: Literal["lower", "higher"]
    digits: int
    """Decimals, of percentage points if the measure is a share."""
    differences: Callable[[Evidence], Differences]
    term: str | None = None
    is_share: bool = False

    def outcome(self, difference: Interval) -> Outcome:
        if difference.low <= 0 <= difference.high:
            return "tie"
        return "win" if (difference.value > 0) == (self.better == "higher") else "lose"


NEXT_TOKEN_LOSS = Question(
    key="loss",
    title="Next-token loss",
    detail="loss increase on held-out text in nats per token, paired by sequence",
    better="lower",
    digits=4,
    differences=_losses,
    term="loss_increase",
)


def questions(benchmark: Benchmark | None) -> tuple[Question, ...]:
    """Return all questions, the plainest first: metrics that have a better end, probes, and other seeds."""
    metrics = (
        Question(
            key=metric.key,
            title=metric.title,
            detail=f"{metric.description}, intervals combined as independent",
            better=metric.better,
            digits=1 if metric.unit == "share" else 4,
            is_share=metric.unit == "share",
            differences=partial(_of_means, lambda one, key=metric.key: one.metrics.get(key)),  # type: ignore[misc]
            term=metric.term,
        )
        for metric in COMPARED
        if metric.better and metric.key not in (RECOVERED, LOSS)  # the same as the paired loss
    )
    probes = (
        Question(
            key=f"probes_{count}",
            title=f"Probes, {count} unit" + "s" * (count > 1),
            detail="ROC-AUC of sparse probes on the data sets of sae-probes, paired by data set",
            better="higher",
            digits=3,
            differences=partial(_probes, count),
            term="roc_auc",
        )
        for count in (benchmark.settings.units if benchmark else ())
    )
    return (
        NEXT_TOKEN_LOSS,
        *metrics,
        *probes,
        Question(
            key="recurrence",
            title="Found again",
            detail="share of experts that fire like one of a run with another seed, more than chance",
            better="higher",
            digits=3,
            differences=_recurrence,
            term="recurrence",
        ),
    )


BASELINES = {"neurons": "neurons", "random gate": "random gate"}
"""Subjects of the benchmark that are no run, by the beginning of their names."""


class Verdict(NamedTuple):
    """The answers to all questions."""

    sentence: str
    """Compares the losses; empty without a paired difference."""
    table: Table | None
    """The other runs; None without one."""
    baselines: Table | None
    """Subjects of the benchmark that are no run; None without one."""
    missing: tuple[str, ...]
    """Questions without an answer."""


def verdict_of(session: Session, compared: Sequence[Compared], benchmark: Benchmark | None) -> Verdict:
    """Compare the first run with its neighbours: the other runs, and what the benchmark compares it with."""
    evidence = Evidence(session, compared[0], compared[1:], benchmark)
    own, others = evidence.own.run, [other.run for other in evidence.others]
    answers = {question: question.differences(evidence) for question in questions(benchmark)}
    titles = _titles(own, others, {name for found in answers.values() for name in found})
    missing = tuple(question.title.lower() for question, found in answers.items() if not found)
    if not titles:
        return Verdict("", None, None, missing)
    runs = {other.name for other in others}
    baselines = [name for name in titles if name.startswith(tuple(f"{start} of " for start in BASELINES))]
    neighbours = [name for name in titles if name not in baselines]

    def table(key: str, other: str, names: Sequence[str]) -> Table:
        answered = {it: found for it, found in answers.items() if not found.keys().isdisjoint(names)}
        heads = tuple(
            Head(
                key=name,
                title=titles[name] if titles[name] == name else titles[name][0].upper() + titles[name][1:],
                detail=_counts(
                    [question.outcome(found[name]) for question, found in answered.items() if name in found]
                ),
                href=run_page(name) if name in runs else None,
            )
            for name in names
        )
        rows = tuple(
            Row(
                key=question.key,
                title=question.title,
                detail=question.detail + arrow(question.better),
                term=question.term,
                cells=tuple(_cell(question, found.get(name)) for name in names),
            )
            for question, found in answered.items()
        )
        title, corner = f"{own.name} minus each {other}", f"{method_title(own.method)} minus the {other}"
        return Table(key=key, title=title, corner=corner, columns=heads, rows=rows, axis=None)

    return Verdict(
        _of_losses(own.name, answers[NEXT_TOKEN_LOSS], titles),
        table("questions", "other run", neighbours) if neighbours else None,
        table("baselines", "baseline", baselines) if baselines else None,
        missing,
    )


def _counts(outcomes: Sequence[Outcome]) -> str:
    return f"{outcomes.count('win')} won, {outcomes.count('lose')} lost, {outcomes.count('tie')} tied"


def _methods(runs: Sequence[RunRecord]) -> dict[str, str]:
    """Return run -> its method, or its name if another run has the same."""
    methods = [run.method for run in runs]
    return {run.name: method_title(run.method) if methods.count(run.method) == 1 else run.name for run in runs}


def _titles(own: RunRecord, others: Sequence[RunRecord], compared: set[str]) -> dict[str, str]:
    """Short names of the compared neighbours."""
    titles = _methods((own, *others))
    for name in sorted(compared - titles.keys()):
        kind = next((title for start, title in BASELINES.items() if name.startswith(f"{start} of ")), None)
        titles[name] = kind or name
    return {name: title for name, title in titles.items() if name in compared}


def _cell(question: Question, difference: Interval | None) -> Cell | None:
    if difference is None:
        return None
    ends = {"value": difference.value, "low": difference.low, "high": difference.high}
    factor, unit = (100, " points") if question.is_share else (1, "")
    found = cell(ends, lambda value: signed(factor * value, question.digits))
    return found and found.model_copy(update={"outcome": question.outcome(difference), "text": found.text + unit})


def _in_words(name: str, title: str) -> str:
    return name if name == title else f"the {title}"


SIDES: Mapping[Outcome, str] = {"lose": "above", "tie": "level with", "win": "below"}
NAMED = 3
"""Runs that a sentence on losses names; if there are more, it counts them."""


def _of_losses(subject: str, found: Differences, titles: Mapping[str, str]) -> str:
    """Return ``own is behind: its loss is 0.0115 nats above the transcoder’s …``; empty without differences."""
    if not found:
        return ""
    largest_first = sorted(found.items(), key=lambda item: -item[1].value)
    outcomes = {name: NEXT_TOKEN_LOSS.outcome(difference) for name, difference in largest_first}
    counts = Counter(outcomes.values())
    clauses = (
        [f"{side} that of {plural(counts[outcome], 'other run')}" for outcome, side in SIDES.items() if counts[outcome]]
        if len(found) > NAMED
        else [
            f"{'' if outcome == 'tie' else f'{abs(found[name].value):.4f} nats '}{SIDES[outcome]} "
            f"{_in_words(name, titles[name])}’s"
            for name, outcome in outcomes.items()
        ]
    )
    judged = " is behind: its" if counts.keys() == {"lose"} else " is ahead: its" if counts.keys() == {"win"} else "’s"
    return f"{subject}{judged} loss is {listed(clauses)} (paired by sequence, 95 %)."


def loss_sentences(session: Session) -> tuple[str, ...]:
    """Return how the loss of an MLP's newest MxD compares with its other runs', for the two newest MLPs with paired
    differences."""
    mlps, sentences = evaluated_mlps(session), list[str]()
    for (model, layer), runs in mlps.items():
        if len(sentences) == 2:
            break
        own, *others = sorted(runs, key=lambda run: not run.method.endswith("mxd"))
        found = loss_differences(session, own, others)
        if not found:
            continue
        titles = _methods((own, *others))
        of_model = f" of {display_name(model)}" if len({model for model, _ in mlps}) > 1 else ""
        subject = f"In layer {layer}{of_model}, {_in_words(own.name, titles[own.name])}"
        sentences.append(_of_losses(subject, found, titles))
    return tuple(sentences)
