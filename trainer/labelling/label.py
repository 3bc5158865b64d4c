"""Labels for all experts of a run, from its index alone, each with a score on what was held back.

Half of the sequences, four by four, are used to find the rule and the other half to test it. A label's balanced
accuracy is the mean of two shares: of the expert's held-back contexts that it describes (as many from every interval of
its coefficient, and the largest), and of the held-back sample's tokens where the expert is silent that it does not.
Precision and recall are counted on that sample's tokens as they come.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine, delete, insert
from sqlalchemy.orm import Session

from trainer.labelling.corpus import Corpus, Stopped, read_corpus
from trainer.labelling.rules import Background, Places, Rule, Search, fits
from trainer.labelling.words import in_words
from trainer.progress import Progress, ShouldStop, never, silent
from trainer.registration import registered
from trainer.run import Run
from trainer.store import utc_now, writing
from trainer.tables import AutomaticLabelRecord

MAKER = "features"
FEWEST_CONTEXTS = 4
"""To find a rule in, and as many to test it on."""
WORTH_SAYING = 0.2
"""Least objective of a rule that becomes a label."""


@dataclass(frozen=True)
class LabelScore:
    """How well a label tells where its expert is active, on what was held back."""

    balanced_accuracy: float
    precision: float | None
    """None where the label describes none of the sample's tokens."""
    recall: float | None
    """None where the expert is active on none of them."""
    tested: int
    """Held-back contexts."""


@dataclass(frozen=True)
class Label:
    """An automatic label."""

    expert: int
    label: str
    score: LabelScore


@dataclass(frozen=True)
class LabelResult:
    """What ``mxd label`` reports."""

    run: str
    experts: int
    """Active ones."""
    labelled: int
    balanced_accuracy: float | None
    """Mean over labels."""
    precision: float | None
    recall: float | None
    seconds: float


def label_experts(
    run: Run, store: Engine, *, progress: Progress = silent, should_stop: ShouldStop = never
) -> LabelResult:
    """Label every expert that its index says enough of; replaces the labels of the same kind that it had.

    Raises:
        NotFoundError: the store does not know the run.
        UserError: it has no index, or ``should_stop`` said so.
    """
    started = time.perf_counter()
    with Session(store) as session:
        record = registered(session, run.name)
        run_id = record.id
        corpus = read_corpus(session, record, run.tokenizer, should_stop)
    labels = list(_labels(corpus, progress, should_stop))
    _write(store, run_id, labels)
    return _result(run.name, corpus, labels, time.perf_counter() - started)


def _labels(corpus: Corpus, progress: Progress, should_stop: ShouldStop) -> Iterator[Label]:
    held_back = corpus.held_back_T[corpus.sample]
    finding = Background(corpus.columns_CT, corpus.sample[~held_back])
    testing = Background(corpus.columns_CT, corpus.sample[held_back])
    experts = np.flatnonzero(corpus.usage_N > 0).tolist()
    found = 0
    for number, expert in enumerate(experts):
        if should_stop():
            raise Stopped("Labelling was stopped; nothing was changed. Run the same command to start it again.")
        label = _label(corpus, finding, testing, expert)
        if label is not None:
            found += 1
            yield label
        progress(number + 1, len(experts), f"{found:,} labels")


def _label(corpus: Corpus, finding: Background, testing: Background, expert: int) -> Label | None:
    contexts, active = corpus.contexts.of(expert), corpus.active.of(expert)
    held_back, active_held_back = corpus.held_back_T[contexts], corpus.held_back_T[active]
    if min((~held_back).sum(), held_back.sum()) < FEWEST_CONTEXTS or not len(finding.places_B):
        return None
    usage = float(corpus.usage_N[expert])
    best = Search(finding, contexts[~held_back], active[~active_held_back], usage).best()
    if best is None or best.objective < WORTH_SAYING:
        return None
    score = score_of(best.rule, testing, contexts[held_back], active[active_held_back])
    return Label(expert, in_words(best.rule, corpus.describer.words), score)


def score_of(rule: Rule, testing: Background, contexts: Places, active: Places) -> LabelScore:
    """How well a rule does on held-back contexts and a held-back sample, on which the expert is ``active`` there."""
    described = testing.matching(rule)
    right = int(np.isin(described, active).sum())
    silent_tokens = len(testing.places_B) - len(active)
    wrong_share = (len(described) - right) / max(silent_tokens, 1)
    found_share = float(fits(testing.columns_CT, rule, contexts).mean())
    return LabelScore(
        balanced_accuracy=(found_share + 1 - wrong_share) / 2,
        precision=right / len(described) if len(described) else None,
        recall=right / len(active) if len(active) else None,
        tested=len(contexts),
    )


def _write(store: Engine, run_id: int, labels: list[Label]) -> None:
    table = AutomaticLabelRecord
    with writing(store) as session:
        session.execute(delete(table).where(table.run_id == run_id, table.maker == MAKER))
        rows = [
            {
                "run_id": run_id,
                "expert": label.expert,
                "maker": MAKER,
                "label": label.label,
                "balanced_accuracy": label.score.balanced_accuracy,
                "precision": label.score.precision,
                "recall": label.score.recall,
                "tested": label.score.tested,
                "created_at": utc_now(),
            }
            for label in labels
        ]
        if rows:
            session.execute(insert(table), rows)


def _result(run: str, corpus: Corpus, labels: list[Label], seconds: float) -> LabelResult:
    def mean(values: list[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    return LabelResult(
        run=run,
        experts=int((corpus.usage_N > 0).sum()),
        labelled=len(labels),
        balanced_accuracy=mean([label.score.balanced_accuracy for label in labels]),
        precision=mean([label.score.precision for label in labels]),
        recall=mean([label.score.recall for label in labels]),
        seconds=seconds,
    )
