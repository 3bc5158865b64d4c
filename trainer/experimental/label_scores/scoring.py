"""Detection, fuzzing and embedding scores of labels (Paulo et al., arXiv 2410.13928), against labels of other experts.

- **Detection**: texts with an active token against texts without one.
- **Fuzzing**: texts with the active token marked against the same texts with an inactive token marked.
- **Embedding**: as detection, by the cosine between the embeddings of label and text.

Each score is an AUROC over the texts of one expert. The control is the label of another expert on the same texts. A
score that cannot be measured is None, with the reason, and counts in no mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.trainer.errors import TooLongError, UserError
from mxd.trainer.experimental.label_scores.judge import DETECTION, FUZZING, Floats, LocalJudge
from mxd.trainer.experimental.label_scores.results import (
    LabelScore,
    LabelScores,
    MethodSummary,
    ScoredLabel,
    ScoreMethod,
)
from mxd.trainer.experimental.label_scores.texts import ScoringTexts, read_scoring_texts
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.auroc import auroc
from mxd.trainer.utils.bootstrap import Bootstrap
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks
from mxd.trainer.utils.wilson import wilson_interval

MIN_TEXTS = 3
RESAMPLES = 2000
Scorer = Callable[[LocalJudge, str, ScoringTexts], tuple[Floats, Floats]]
"""Function to the scores of the texts that fit the label, and of those that do not."""


@dataclass(frozen=True)
class NamedLabel:
    """A label and who wrote it."""

    text: str
    labeller: str


def score_labels(
    run: Run,
    database: Engine,
    labels: Mapping[int, NamedLabel],
    judge: LocalJudge,
    methods: Sequence[ScoreMethod],
    texts: int,
    seed: int,
    callbacks: Callbacks = NO_CALLBACKS,
) -> LabelScores:
    """Score labels and, as a control, the same labels given to other experts.

    Args:
        labels: expert -> label; at least two.
        texts: maximum number of texts of each kind per label.
        seed: seed of the other labels and of the bootstrap.

    Raises:
        NotFoundError: the run is not in the database.
        UserError: there are fewer than two different labels.
        CancelledError: the task was cancelled.
    """
    others = _other_labels(labels, seed)
    scored = []
    for number, (expert, label) in enumerate(labels.items()):
        callbacks.check_cancelled()
        with Session(database) as session:
            read = read_scoring_texts(session, find_record(session, run.name), expert, run.tokenizer, texts)
        own, other = (
            {method: _score(SCORERS[method], judge, text, read) for method in methods}
            for text in (label.text, others[expert])
        )
        scored.append(ScoredLabel(expert, label.text, label.labeller, others[expert], own, other))
        callbacks.on_progress(number + 1, len(labels), "")
    summaries = {method: _summary(method, scored, seed) for method in methods}
    return LabelScores(run.name, judge.name, texts, seed, summaries, tuple(scored))


def _other_labels(labels: Mapping[int, NamedLabel], seed: int) -> dict[int, str]:
    """For each expert a different label of another one, at random.

    Raises:
        UserError: all labels are equal.
    """
    texts = [label.text for label in labels.values()]
    if len(set(texts)) < 2:
        raise UserError("The control needs at least two different labels. Score more experts.")
    generator = np.random.default_rng(seed)
    return {
        expert: str(generator.choice([text for text in texts if text != label.text]))
        for expert, label in labels.items()
    }


def _score(scorer: Scorer, judge: LocalJudge, label: str, texts: ScoringTexts) -> LabelScore:
    try:
        positive, negative = scorer(judge, label, texts)
    except TooLongError as error:
        return LabelScore(None, None, None, len(texts.active), len(texts.inactive), str(error))
    sizes = (len(positive), len(negative))
    if min(sizes) < MIN_TEXTS:
        return LabelScore(None, None, None, *sizes, f"fewer than {MIN_TEXTS} held-out texts of a kind")
    if not np.isfinite([*positive, *negative]).all():
        return LabelScore(None, None, None, *sizes, "the language model returned numbers that are not finite")
    value = auroc(positive, negative)
    return LabelScore(value, *wilson_interval(value, min(sizes)), *sizes)


def detection(judge: LocalJudge, label: str, texts: ScoringTexts) -> tuple[Floats, Floats]:
    """Log-odds that a text contains what the label describes."""
    return _asked(
        judge, DETECTION, label, *([window.text for window in part] for part in (texts.active, texts.inactive))
    )


def fuzzing(judge: LocalJudge, label: str, texts: ScoringTexts) -> tuple[Floats, Floats]:
    """Log-odds that the marked token is what the label describes."""
    parts = ([window.marked_text for window in part] for part in (texts.active, texts.wrongly_marked))
    return _asked(judge, FUZZING, label, *parts)


def embedding(judge: LocalJudge, label: str, texts: ScoringTexts) -> tuple[Floats, Floats]:
    """Cosine between label and text, after the mean of the texts is subtracted."""
    windows = [*texts.active, *texts.inactive]
    if not windows:
        return np.zeros(0), np.zeros(0)
    embedded = judge.embeddings([label, *(window.text for window in windows)])
    centred = embedded - embedded[1:].mean(0)
    unit = centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    cosines = unit[1:] @ unit[0]
    return cosines[: len(texts.active)], cosines[len(texts.active) :]


SCORERS: Mapping[ScoreMethod, Scorer] = {"detection": detection, "fuzzing": fuzzing, "embedding": embedding}


def _asked(
    judge: LocalJudge, template: str, label: str, positive: Sequence[str], negative: Sequence[str]
) -> tuple[Floats, Floats]:
    odds = judge.log_odds([template.format(label=label, text=text) for text in (*positive, *negative)])
    return odds[: len(positive)], odds[len(positive) :]


def _summary(method: ScoreMethod, scored: Sequence[ScoredLabel], seed: int) -> MethodSummary:
    pairs = [(each.scores[method].value, each.other_scores[method].value) for each in scored]
    known = np.array([(own, other) for own, other in pairs if own is not None and other is not None]).reshape(-1, 2)
    if not len(known):
        return MethodSummary(0, len(scored), None, None, None, None)
    own, other = known.T
    bootstrap = Bootstrap(len(known), RESAMPLES, seed)
    return MethodSummary(
        labels=len(known),
        failed=len(scored) - len(known),
        own=bootstrap.mean(own),
        other=bootstrap.mean(other),
        difference=bootstrap.mean(own - other),
        own_is_better=bootstrap.mean((own > other) + 0.5 * (own == other)),
    )
