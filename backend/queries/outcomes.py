"""Outcomes of comparing a run with each neighbour, question by question: win, tie or lose.

A neighbour is another evaluated run of the same MLP or, in the benchmark, its neurons or a gate without training. Every
difference is the run minus the neighbour. It is a tie if its 95 % interval contains zero.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from mxd.backend.queries.automatic_labels import FEATURES
from mxd.backend.queries.evaluations import loss_difference
from mxd.backend.queries.probes import BENCHMARK_METRIC, Z95
from mxd.backend.queries.report_text import cell, method_title, run_page, signed
from mxd.backend.schemas.runs import Cell, Head, Row, Table
from mxd.trainer.evaluation.benchmark_results import Benchmark
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, IndexRecord, RecurrenceRecord, RunRecord
from mxd.trainer.utils.bootstrap import Interval

MIN_EXPERTS = 2
"""Number of experts that a standard error needs."""
Outcome = Literal["win", "tie", "lose"]


class Mean(NamedTuple):
    """A mean, with its standard error."""

    value: float
    standard_error: float


def means_over_experts(session: Session, run: RunRecord) -> dict[str, Mean]:
    """Return the token entropy, in bits, and the label score of a run's experts; empty without an index. They say how
    easily experts are described, and depend on the indexed text and its length."""
    if session.get(IndexRecord, run.id) is None:
        return {}
    expert, label = ExpertRecord, AutomaticLabelRecord
    active = (expert.run_id == run.id, expert.active_tokens > 0)
    # Only one labeller, so that runs are comparable. Imported labels have no test examples and no score.
    scored = (label.run_id == run.id, label.labeller == FEATURES, label.test_examples > 0)
    columns = {"token_entropy": (expert.entropy, active), "label_score": (label.balanced_accuracy, scored)}
    means = {}
    for key, (column, conditions) in columns.items():
        query = select(func.count(column), func.avg(column), func.avg(column * column)).where(*conditions)
        count, mean, mean_square = session.execute(query).one()
        if count >= MIN_EXPERTS:
            variance = max(0.0, mean_square - mean**2) * count / (count - 1)
            means[key] = Mean(mean, math.sqrt(variance / count))
    return means


class Evidence(NamedTuple):
    """Sources of the answers."""

    session: Session
    own: RunRecord
    others: Sequence[RunRecord]
    """Other evaluated runs of the same MLP."""
    benchmark: Benchmark | None


Differences = Mapping[str, Interval]
"""Neighbour -> the run minus it."""


def _losses(evidence: Evidence) -> Differences:
    session, own, others, _ = evidence
    found = {other.name: loss_difference(session, own, other) for other in others}
    return {name: difference[0] for name, difference in found.items() if difference is not None}


def _of_means(means: Callable[[RunRecord], Mean | None], evidence: Evidence) -> Differences:
    """Differences of means that do not depend on one another."""
    own, others = means(evidence.own), {other.name: means(other) for other in evidence.others}
    found = {}
    for name, other in others.items():
        if own is not None and other is not None:
            value = own.value - other.value
            margin = Z95 * math.hypot(own.standard_error, other.standard_error)
            found[name] = Interval(value, value - margin, value + margin)
    return found


def _labels(evidence: Evidence) -> Differences:
    return _of_means(lambda run: means_over_experts(evidence.session, run).get("label_score"), evidence)


def _recurrence(evidence: Evidence) -> Differences:
    def mean(run: RunRecord) -> Mean | None:
        found = func.count().filter(RecurrenceRecord.firing_low > RecurrenceRecord.firing_chance)
        query = select(found, func.count()).where(RecurrenceRecord.run_id == run.id)
        same, count = evidence.session.execute(query).one()
        return Mean(same / count, math.sqrt(same / count * (1 - same / count) / count)) if count else None

    return _of_means(mean, evidence)


def _probes(units: int, evidence: Evidence) -> Differences:
    """Differences of the benchmark, which has those of its first run."""
    if evidence.benchmark is None or not evidence.benchmark.scores:
        return {}
    mine = [one for one in evidence.benchmark.differences if one.units == units and one.metric == BENCHMARK_METRIC]
    first = evidence.benchmark.scores[0].subject
    if evidence.own.name == first:
        return {one.subject: one.mean for one in mine}
    reverse = next((one.mean for one in mine if one.subject == evidence.own.name), None)
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
    differences: Callable[[Evidence], Differences]
    term: str | None = None
    worded: str = ""
    """In a sentence. Default: the title, in lower case."""

    def outcome(self, difference: Interval) -> Outcome:
        if difference.low <= 0 <= difference.high:
            return "tie"
        return "win" if (difference.value > 0) == (self.better == "higher") else "lose"


PROBES = "probes_"
"""Beginning of the keys of questions on probes."""


def questions(benchmark: Benchmark | None) -> tuple[Question, ...]:
    """Return all questions, the plainest first."""
    units = benchmark.settings.units if benchmark else ()
    probes = (
        Question(
            key=f"{PROBES}{count}",
            title=f"Probes, {count} unit" + "s" * (count > 1),
            detail="ROC-AUC of sparse probes on the data sets of sae-probes, paired by data set",
            better="higher",
            digits=3,
            differences=partial(_probes, count),
            term="roc_auc",
        )
        for count in units
    )
    return (
        Question(
            key="loss",
            title="Next-token loss",
            detail="loss increase on held-out text in nats per token, paired by sequence",
            better="lower",
            digits=4,
            differences=_losses,
            term="loss_increase",
        ),
        Question(
            key="labels",
            title="Labels",
            detail="balanced accuracy of automatic labels on held-out examples, mean over experts",
            better="higher",
            digits=4,
            differences=_labels,
            term="automatic_label",
        ),
        *probes,
        Question(
            key="recurrence",
            title="Found again",
            detail="share of experts that fire like one of a run with another seed, more than chance",
            better="higher",
            digits=3,
            differences=_recurrence,
            term="recurrence",
            worded="experts found again in another seed",
        ),
    )


BASELINES = {"neurons": "neurons", "random gate": "untrained gate"}
"""Subjects of the benchmark that are no run, by the beginning of their names."""


class Verdict(NamedTuple):
    """The answers to all questions."""

    sentence: str
    """Names wins and losses; empty if nothing was measured on two of them."""
    table: Table | None
    missing: tuple[str, ...]
    """Questions without an answer."""


def verdict_of(session: Session, own: RunRecord, others: Sequence[RunRecord], benchmark: Benchmark | None) -> Verdict:
    """Compare a run with its neighbours: ``others``, and what the benchmark compares it with."""
    asked = questions(benchmark)
    evidence = Evidence(session, own, others, benchmark)
    answers = {question: question.differences(evidence) for question in asked}
    titles = _titles(own, others, {name for found in answers.values() for name in found})
    missing = tuple(question.title.lower() for question, found in answers.items() if not found)
    if not titles:
        return Verdict("", None, missing)
    rows = tuple(
        Row(
            key=question.key,
            title=question.title,
            detail=f"{question.detail}\n{'↓ lower' if question.better == 'lower' else '↑ higher'} is better",
            term=question.term,
            cells=tuple(_cell(question, found.get(name)) for name in titles),
        )
        for question, found in answers.items()
        if found
    )
    runs = {other.name for other in others} & titles.keys()
    table = Table(
        key="questions",
        title=f"{own.name} minus each neighbour",
        corner=f"{method_title(own.method)} minus …",
        columns=tuple(
            Head(key=name, title=title, href=run_page(name) if name in runs else None) for name, title in titles.items()
        ),
        rows=rows,
        axis=None,
    )
    return Verdict(_sentence(answers, titles, runs), table, missing)


def _titles(own: RunRecord, others: Sequence[RunRecord], compared: set[str]) -> dict[str, str]:
    """Short names of the compared neighbours: the method of a run, unless another run has the same."""
    methods = [own.method, *(other.method for other in others)]
    titles = {
        other.name: method_title(other.method) if methods.count(other.method) == 1 else other.name for other in others
    }
    for name in sorted(compared - titles.keys()):
        kind = next((title for start, title in BASELINES.items() if name.startswith(f"{start} of ")), None)
        titles[name] = kind or name
    return {name: title for name, title in titles.items() if name in compared}


def _cell(question: Question, difference: Interval | None) -> Cell | None:
    if difference is None:
        return None
    ends = {"value": difference.value, "low": difference.low, "high": difference.high}
    found = cell(ends, partial(signed, digits=question.digits))
    return found and found.model_copy(update={"outcome": question.outcome(difference)})


def _sentence(answers: Mapping[Question, Differences], titles: Mapping[str, str], runs: Collection[str]) -> str:
    """Return wins and losses as text. An untrained gate is a control, so that a win against it is not worth a word."""
    rivals = [name for name, title in titles.items() if title != BASELINES["random gate"]]
    parts = []
    for outcome, verb in (("win", "wins"), ("lose", "loses")):
        by_rivals: defaultdict[tuple[str, ...], list[Question]] = defaultdict(list)
        for question, found in answers.items():
            same = tuple(name for name in rivals if name in found and question.outcome(found[name]) == outcome)
            if same:
                by_rivals[same].append(question)
        clauses = [
            f"in {_subjects(asked)} against {_opponents(names, titles, runs)}" for names, asked in by_rivals.items()
        ]
        parts.append(f"it {verb} {joined(clauses)}" if clauses else f"it {verb} in nothing")
    said = "; ".join(parts)
    answered = ((question, found[name]) for question, found in answers.items() for name in rivals if name in found)
    has_ties = any(question.outcome(difference) == "tie" for question, difference in answered)
    control = "" if len(rivals) == len(titles) else f", apart from the {BASELINES['random gate']},"
    return f"{said[0].upper()}{said[1:]}." + f" All other comparisons{control} are ties." * has_ties


def _subjects(asked: Sequence[Question]) -> str:
    """Return questions as text, those on probes as one."""
    units = [question.key.removeprefix(PROBES) for question in asked if question.key.startswith(PROBES)]
    plain = [question.worded or question.title.lower() for question in asked if not question.key.startswith(PROBES)]
    return joined([*plain, *([f"probes of {joined(units)} unit{'s' * (units != ['1'])}"] if units else [])])


def _opponents(names: Sequence[str], titles: Mapping[str, str], runs: Collection[str]) -> str:
    """Return neighbours as text, all other runs as one if they have one kind."""
    kinds = {titles[name].split()[-1] for name in names}
    if set(names) == set(runs) and len(names) > 1 and len(kinds) == 1:
        return f"{'both' if len(names) == 2 else 'all'} {kinds.pop()}s"
    return joined([titles[name] if titles[name] == name else f"the {titles[name]}" for name in names])


def joined(words: Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
