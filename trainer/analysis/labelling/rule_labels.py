"""Labels by rules on tokens: their text, and scores on held-out examples.

Rules in English, as labels of experts.

Rule-based labels for all experts of an indexed run, each scored on held-out sequences.

Blocks of sequences alternate between finding a rule and testing it. A label's balanced accuracy is the mean of two
shares on held-out data: the expert's examples that the rule matches, and the sample's inactive tokens that it does not
match. Precision and recall are measured on all held-out tokens of the sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from sqlalchemy import Engine, delete, insert
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.corpus import Corpus, read_corpus
from mxd.trainer.analysis.labelling.rule_search import (
    ActiveTokens,
    BackgroundTokens,
    Indices,
    Rule,
    find_rules,
    is_among,
    matches,
)
from mxd.trainer.analysis.labelling.token_features import Vocabulary
from mxd.trainer.language_model.tokenizer import DOCUMENT_SEPARATOR
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

_BREAKS = str.maketrans({"\n": "↵", "\t": "⇥", "\r": ""})


def describe_rule(rule: Rule, vocabularies: Mapping[str, Vocabulary]) -> str:
    """Describe a rule in English."""
    texts = {one.name: [vocabularies[one.name].texts[value] for value in one.values] for one in rule}
    language = texts.pop("language", [])
    text = " ".join(part for part in (_subject(texts), _surroundings(texts)) if part)
    if not text:
        return _either(language) if language else ""
    text = text if text[0] in "“‘" else text[0].upper() + text[1:]
    return f"{_either(language)}: {text}" if language else text


def _subject(texts: Mapping[str, Sequence[str]]) -> str:
    tokens, words = texts.get("token"), texts.get("word")
    kind, ending = texts.get("kind"), texts.get("ending")
    if tokens and words:
        same = {token.strip().lower() for token in tokens} == set(words)
        return quoted(tokens) if same else f"the {quoted(tokens)} of {quoted(words)}"
    if tokens:
        is_part = kind is not None and all("word" in value and value != "words" for value in kind)
        return f"{quoted(tokens)}, {_either(kind)}" if is_part and kind else quoted(tokens)
    if words:
        return f"{_either(kind)} of {quoted(words)}" if kind and kind != ["words"] else quoted(words)
    if ending:
        return f"{_either(kind) if kind else 'words'} in {_either([f'“-{value}”' for value in ending])}"
    return _either(kind) if kind else ""


def _surroundings(texts: Mapping[str, Sequence[str]]) -> str:
    phrases: dict[str, Callable[[Sequence[str]], str]] = {
        "before": _after,
        "before_two": _after,
        "kind_before": lambda values: f"after {_either(values)}",
        "start": lambda values: f"at {_either(values)}",
        "inside": lambda values: f"inside {_either(values)}",
    }
    parts = [phrase(texts[name]) for name, phrase in phrases.items() if name in texts]
    # The longer of two statements about the preceding tokens implies the shorter one.
    if "before" in texts and "before_two" in texts:
        parts.pop(0)
    return " ".join(dict.fromkeys(parts))


def _after(texts: Sequence[str]) -> str:
    """Describe preceding tokens. A document separator is named, not quoted."""
    start = "at the start of a document"
    inside = [text for text in texts if DOCUMENT_SEPARATOR not in text]
    first = [text.split(DOCUMENT_SEPARATOR)[-1] for text in texts if DOCUMENT_SEPARATOR in text]
    words = [text for text in first if text]
    phrases = [f"after {quoted(inside)}"] if inside else []
    phrases += [f"after {quoted(words)} {start}"] if words else []
    return _either([*phrases, start] if "" in first else phrases)


def quoted(texts: Sequence[str]) -> str:
    """Quote tokens, with visible white space."""
    printable = [text.strip(" ").translate(_BREAKS) or "␣" * min(len(text), 4) for text in texts]
    quoted = [f"“{text}”".replace(f"“{DOCUMENT_SEPARATOR}”", "the end of a document") for text in printable]
    return _either(list(dict.fromkeys(quoted)))


def _either(texts: Sequence[str] | None) -> str:
    texts = texts or []
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} or {texts[-1]}"


LABELLER = "features"
MIN_EXAMPLES = 4
"""Examples required to find a rule, and to test it."""
EXPERTS_AT_A_TIME = 512
"""Experts whose rules are searched together, which bounds memory."""
MIN_OBJECTIVE = 0.2
"""Smallest objective of a rule that becomes a label."""


@dataclass(frozen=True)
class LabelScore:
    """Score of a label as a predictor of the expert's activity, on held-out data."""

    balanced_accuracy: float
    precision: float | None
    """None if the label matches no token of the sample."""
    recall: float | None
    """None if the expert is active on no token of the sample."""
    test_examples: int
    """Number of held-out examples."""


@dataclass(frozen=True)
class Label:
    """A rule-based label of an expert."""

    expert: int
    label: str
    score: LabelScore


@dataclass(frozen=True)
class LabelResult:
    """Summary that ``mxd label`` reports."""

    run: str
    experts: int
    """Experts that are not dead."""
    labelled: int
    """Experts that got a label."""
    balanced_accuracy: float | None
    """Mean over labels; None if there are none."""
    precision: float | None
    """Mean over labels with a precision."""
    recall: float | None
    """Mean over labels with a recall."""
    seconds: float


def label_experts(run: Run, database: Engine, *, callbacks: Callbacks = NO_CALLBACKS) -> LabelResult:
    """Label every expert with enough examples, and replace the run's rule-based labels.

    Raises:
        NotFoundError: the run is not in the database.
        UserError: the run is not indexed.
        CancelledError: the task was cancelled. Previous labels are unchanged.
    """
    started = time.perf_counter()
    with Session(database) as session:
        record = find_record(session, run.name)
        run_id = record.id
        corpus = read_corpus(session, record, run.tokenizer, callbacks)
    labels = list(_find_labels(corpus, callbacks))
    _write(database, run_id, labels)
    return _result(run.name, corpus, labels, time.perf_counter() - started)


def _find_labels(corpus: Corpus, callbacks: Callbacks) -> Iterator[Label]:
    held_out = corpus.held_out_T[corpus.sample]
    finding = BackgroundTokens(corpus.features_FT, corpus.sample[~held_out])
    testing = BackgroundTokens(corpus.features_FT, corpus.sample[held_out])
    experts = np.flatnonzero(corpus.density_N > 0).tolist()
    num_labels = 0
    for start in range(0, len(experts), EXPERTS_AT_A_TIME):
        callbacks.check_cancelled()
        for label in _labels_of(corpus, finding, testing, experts[start : start + EXPERTS_AT_A_TIME]):
            num_labels += 1
            yield label
        done = min(start + EXPERTS_AT_A_TIME, len(experts))
        callbacks.on_progress(done, len(experts), f"{num_labels:,} labels")


def _labels_of(
    corpus: Corpus, finding: BackgroundTokens, testing: BackgroundTokens, experts: Sequence[int]
) -> Iterator[Label]:
    splits = {expert: _Split.of(corpus, expert) for expert in experts}
    chosen = [expert for expert, split in splits.items() if split.has_enough_examples and len(finding.tokens_B)]
    rules = find_rules(finding, [splits[expert].finding for expert in chosen])
    for expert, best in zip(chosen, rules, strict=True):
        if best is not None and best.objective >= MIN_OBJECTIVE:
            held_out = splits[expert].testing
            score = score_rule(best.rule, testing, held_out.positives_P, held_out.active)
            yield Label(expert, describe_rule(best.rule, corpus.extractor.vocabularies), score)


class _Split(NamedTuple):
    """Tokens of an expert to find a rule with, and to test it with."""

    finding: ActiveTokens
    testing: ActiveTokens

    @classmethod
    def of(cls, corpus: Corpus, expert: int) -> _Split:
        examples, active = corpus.examples.for_expert(expert), corpus.active.for_expert(expert)
        held_out, active_held_out = corpus.held_out_T[examples], corpus.held_out_T[active]
        density = float(corpus.density_N[expert])
        return cls(
            ActiveTokens(examples[~held_out], active[~active_held_out], density),
            ActiveTokens(examples[held_out], active[active_held_out], density),
        )

    @property
    def has_enough_examples(self) -> bool:
        return min(len(self.finding.positives_P), len(self.testing.positives_P)) >= MIN_EXAMPLES


def score_rule(rule: Rule, testing: BackgroundTokens, examples: Indices, active: Indices) -> LabelScore:
    """Score a rule on held-out examples and on a held-out sample.

    Args:
        testing: tokens of the held-out sample.
        examples: peak tokens of the held-out examples.
        active: tokens of the held-out sample on which the expert is active, ascending.
    """
    matched = testing.matching(rule)
    true_positives = int(is_among(matched, active).sum())
    inactive_tokens = len(testing.tokens_B) - len(active)
    false_positive_rate = (len(matched) - true_positives) / max(inactive_tokens, 1)
    example_recall = float(matches(testing.features_FT, rule, examples).mean())
    return LabelScore(
        balanced_accuracy=(example_recall + 1 - false_positive_rate) / 2,
        precision=true_positives / len(matched) if len(matched) else None,
        recall=true_positives / len(active) if len(active) else None,
        test_examples=len(examples),
    )


def _write(database: Engine, run_id: int, labels: list[Label]) -> None:
    table = AutomaticLabelRecord
    with writing(database) as session:
        session.execute(delete(table).where(table.run_id == run_id, table.labeller == LABELLER))
        rows = [
            {
                "run_id": run_id,
                "expert": label.expert,
                "labeller": LABELLER,
                "label": label.label,
                "balanced_accuracy": label.score.balanced_accuracy,
                "precision": label.score.precision,
                "recall": label.score.recall,
                "test_examples": label.score.test_examples,
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
        experts=int((corpus.density_N > 0).sum()),
        labelled=len(labels),
        balanced_accuracy=mean([label.score.balanced_accuracy for label in labels]),
        precision=mean([label.score.precision for label in labels]),
        recall=mean([label.score.recall for label in labels]),
        seconds=seconds,
    )
