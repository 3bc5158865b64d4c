"""Labels by rules on tokens: search for a rule, its text in English, and its score on held-out sequences.

A rule is a conjunction of a few conditions. A condition requires one feature of the token to have one of a few values.
The search is a greedy beam search. For each feature, it adds values by descending ratio of their frequencies among the
expert's tokens and among other tokens, while the objective rises. It then adds conditions on other features likewise.

The objective is the F1 score less a small penalty per condition and value. Recall is measured on the expert's examples.
Precision follows by Bayes' theorem from recall, the false positive rate and the expert's density. The first example
with a value does not count towards its recall, because one occurrence is no evidence.

Blocks of sequences alternate between finding a rule and testing it. A label's balanced accuracy is the mean of two
shares on held-out data: the expert's examples that the rule matches, and the sample's inactive tokens that it does not
match. Precision and recall are measured on all held-out tokens of the sample.

Shapes: F features, T tokens, P tokens of the expert, B background tokens.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, delete, insert
from sqlalchemy.orm import Session

from mxd.trainer.analysis.labelling.features import FEATURES, Corpus, Indices, Vocabulary, read_corpus, visible
from mxd.trainer.language_model.tokenizer import DOCUMENT_SEPARATOR
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import AutomaticLabelRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import NO_CALLBACKS, Callbacks

MAX_VALUES = {"token": 4, "word": 4, "before": 3, "before_two": 3, "ending": 2, "language": 2, "inside": 1, "start": 2}
DEFAULT_MAX_VALUES = 2
MAX_VALUES_F = np.array([MAX_VALUES.get(name, DEFAULT_MAX_VALUES) for name in FEATURES])
MAX_CONDITIONS = 3
BEAM = 2
CONDITION_PENALTY = 0.03
VALUE_PENALTY = 0.02
MAX_NEGATIVES = 12_000
"""Maximum number of matching inactive tokens checked per rule. Of more, every n-th is checked."""
Features = NDArray[np.int32]


@dataclass(frozen=True)
class Condition:
    feature: int
    """Index of the feature in ``FEATURES``."""
    values: tuple[int, ...]
    """Value ids in the feature's vocabulary."""

    @property
    def name(self) -> str:
        return FEATURES[self.feature]


Rule = tuple[Condition, ...]


@dataclass(frozen=True)
class ActiveTokens:
    """Tokens of one expert that a rule is searched for."""

    positives_P: Indices
    """Tokens of the expert's examples."""
    active: Indices
    """Background tokens on which the expert is active. They do not count as false positives."""
    density: float
    """Share of all tokens on which the expert is active."""


@dataclass(frozen=True)
class RuleCandidate:
    """A rule with the tokens that it matches, and its objective."""

    rule: Rule
    positives_P: Indices
    """Matching tokens of the expert's examples."""
    negatives_B: Indices | None
    """Matching inactive tokens; None for the empty rule, which matches all."""
    weight: float
    """Number of inactive tokens that each entry of ``negatives_B`` represents."""
    objective: float


class BackgroundTokens:
    """Text sample with known activity of every expert, sorted by each feature for fast lookups.

    A code stands for one value of one feature; the codes of a feature follow those of the feature before it.
    """

    def __init__(self, features_FT: Features, tokens_B: Indices) -> None:
        self.features_FT = features_FT
        self.tokens_B = tokens_B
        self._order_FB = np.argsort(features_FT[:, tokens_B], axis=1, kind="stable")
        sizes_F = features_FT.max(axis=1, initial=0).astype(np.int64) + 1
        self.first_code_F = np.cumsum(sizes_F) - sizes_F
        self.num_codes = int(sizes_F.sum())
        self.feature_of_code = np.repeat(np.arange(len(sizes_F)), sizes_F)
        self.count_of_code = self.count_codes(tokens_B)
        """Number of background tokens with each code."""
        before = np.cumsum(self.count_of_code) - self.count_of_code
        self._start_of_code = before - self.feature_of_code * len(tokens_B)

    def codes(self, tokens: Indices) -> Indices:
        # take and an addition in place, because the searches spend most of their time here.
        codes: Indices = self.features_FT.take(tokens, axis=1).astype(np.int64)
        codes += self.first_code_F[:, None]
        return codes

    def count_codes(self, tokens: Indices) -> Indices:
        """Number of times that each code occurs among ``tokens``."""
        return np.bincount(self.codes(tokens).ravel(), minlength=self.num_codes)

    def matching(self, rule: Rule) -> Indices:
        first, *rest = rule
        order, codes = self._order_FB[first.feature], np.array(first.values) + self.first_code_F[first.feature]
        starts, counts = self._start_of_code[codes].tolist(), self.count_of_code[codes].tolist()
        slices = [order[start : start + count] for start, count in zip(starts, counts, strict=True)]
        tokens: Indices = self.tokens_B[np.concatenate(slices)]
        return tokens[matches(self.features_FT, tuple(rest), tokens)] if rest else tokens


def matches(features_FT: Features, rule: Rule, tokens: Indices) -> NDArray[np.bool_]:
    """Test which tokens match a rule of at least one condition. Returns a mask over ``tokens``."""
    tests = []
    for condition in rule:
        feature_T = features_FT[condition.feature, tokens]
        # There are so few values that comparing with each is faster than np.isin.
        tests.append(reduce(np.logical_or, (feature_T == value for value in condition.values)))
    return reduce(np.logical_and, tests)


def is_among(tokens: Indices, ascending: Indices) -> NDArray[np.bool_]:
    """Mask over ``tokens``: those that occur in ``ascending``, as ``np.isin``, which is slow for short arrays."""
    if not len(ascending):
        return np.zeros(len(tokens), np.bool_)
    places = np.searchsorted(ascending, tokens).clip(max=len(ascending) - 1)
    is_equal: NDArray[np.bool_] = ascending[places] == tokens
    return is_equal


def find_rules(background: BackgroundTokens, experts: Sequence[ActiveTokens]) -> list[RuleCandidate | None]:
    """Return the best rule of each expert, or None if no rule matches.

    The candidates of all experts are extended together, because they are too small for one array operation each.
    """
    searches = [_Search(background, expert) for expert in experts]
    running = searches
    for _ in range(MAX_CONDITIONS):
        extend_all(background, running)
        running = [search for search in running if search.keep_best()]
    return [search.best for search in searches]


class _Search:
    """Beam search for the rule of one expert."""

    def __init__(self, background: BackgroundTokens, expert: ActiveTokens) -> None:
        self.background = background
        self.expert = expert
        self.num_inactive = len(background.tokens_B) - len(expert.active)
        self.min_count = max(2, 0.04 * len(expert.positives_P))
        """Examples with a value that are required for a condition. One occurrence is no evidence."""
        self.beam = [RuleCandidate((), expert.positives_P, None, 1.0, 0.0)]
        self.best: RuleCandidate | None = None

    def keep_best(self) -> bool:
        """Reduce the beam to its best candidates; return whether the first of them is an improvement."""
        self.beam = sorted(self.beam, key=lambda candidate: -candidate.objective)[:BEAM]
        if not self.beam or (self.best is not None and self.beam[0].objective <= self.best.objective):
            return False
        self.best = self.beam[0]
        return True

    def false_positives(self, candidate: RuleCandidate, codes: Indices) -> NDArray[np.float64]:
        """Number of inactive tokens with each of ``codes`` among those that a candidate matches."""
        background = self.background
        if candidate.negatives_B is None:
            return np.asarray(background.count_of_code[codes] - background.count_codes(self.expert.active)[codes])
        return np.asarray(candidate.weight * background.count_codes(candidate.negatives_B)[codes])

    def add_condition(self, candidate: RuleCandidate, condition: Condition, objective: float) -> RuleCandidate:
        features_FT = self.background.features_FT
        positives_P = candidate.positives_P[matches(features_FT, (condition,), candidate.positives_P)]
        if candidate.negatives_B is None:
            negatives = self.background.matching((condition,))
            negatives = negatives[~is_among(negatives, self.expert.active)]
        else:
            negatives = candidate.negatives_B[matches(features_FT, (condition,), candidate.negatives_B)]
        step = 1 + len(negatives) // MAX_NEGATIVES
        rule, weight = (*candidate.rule, condition), candidate.weight * step
        return RuleCandidate(rule, positives_P, negatives[::step], weight, objective)


def extend_all(background: BackgroundTokens, searches: Sequence[_Search]) -> None:
    """Replace the beam of each search by its candidates with one more condition that raises the objective."""
    owners = [(search, candidate) for search in searches for candidate in search.beam]
    for search in searches:
        search.beam = []
    if not owners or not len((counts := _frequent_codes(background, owners)).code):
        return
    taken = [0] * len(owners)
    # Matching tokens are listed only for the best conditions.
    for number, condition, objective in _best_conditions(background, owners, counts):
        search, candidate = owners[number]
        if taken[number] < BEAM and objective > candidate.objective:
            taken[number] += 1
            search.beam.append(search.add_condition(candidate, condition, objective))


class _CodeCounts(NamedTuple):
    """Codes that may become conditions of candidates, ascending by candidate and code, all of one length."""

    candidate: Indices
    code: Indices
    true_positives: Indices
    false_positives: NDArray[np.float64]


def _frequent_codes(background: BackgroundTokens, owners: Sequence[tuple[_Search, RuleCandidate]]) -> _CodeCounts:
    tokens = [candidate.positives_P for _, candidate in owners]
    candidate_P = np.repeat(np.arange(len(owners)), [len(each) for each in tokens])
    keys = candidate_P * background.num_codes + background.codes(np.concatenate(tokens))
    keys = np.sort(keys.ravel())
    # As np.unique, in half the time for short arrays.
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
    keys, counts = keys[starts], np.diff(starts, append=len(keys))
    candidate, code = np.divmod(keys, background.num_codes)
    feature = background.feature_of_code[code]
    used = np.zeros((len(owners), len(FEATURES)), np.bool_)
    for number, (_, owner) in enumerate(owners):
        used[number, [condition.feature for condition in owner.rule]] = True
    min_counts = np.array([search.min_count for search, _ in owners])
    # Code 0 of a feature means that the feature does not apply.
    chosen = (code > background.first_code_F[feature]) & (counts >= min_counts[candidate]) & ~used[candidate, feature]
    candidate, code = candidate[chosen], code[chosen]
    false_positives = np.empty(len(code))
    edges = np.searchsorted(candidate, np.arange(len(owners) + 1)).tolist()
    for (search, owner), (start, end) in zip(owners, pairwise(edges), strict=True):
        if end > start:
            false_positives[start:end] = search.false_positives(owner, code[start:end])
    return _CodeCounts(candidate, code, counts[chosen] - 1, false_positives)


def _best_conditions(
    background: BackgroundTokens, owners: Sequence[tuple[_Search, RuleCandidate]], counts: _CodeCounts
) -> Iterator[tuple[int, Condition, float]]:
    """The best condition on each feature of each candidate, with the candidate's index and its new objective: candidate
    by candidate, best first. Values are added by descending ratio of true to false positives while the objective rises.
    """
    feature = background.feature_of_code[counts.code]
    group = counts.candidate * len(FEATURES) + feature
    order = np.lexsort((-counts.true_positives / (counts.false_positives + 0.5), group))
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    row = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    rank = np.arange(len(order)) - starts[row]
    is_used = rank < MAX_VALUES_F[feature[order]]
    order, row, rank = order[is_used], row[is_used], rank[is_used]
    shape = len(starts), int(MAX_VALUES_F.max())
    true_positives, false_positives, values = np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64)
    true_positives[row, rank] = counts.true_positives[order]
    false_positives[row, rank] = counts.false_positives[order]
    values[row, rank] = counts.code[order] - background.first_code_F[feature[order]]
    first = order[rank == 0]
    candidate = counts.candidate[first]
    objectives = _objectives(
        [owners[number] for number in candidate.tolist()], true_positives.cumsum(axis=1), false_positives.cumsum(axis=1)
    )
    objectives[np.arange(shape[1]) >= np.bincount(row)[:, None]] = -np.inf
    last, objective = objectives.argmax(axis=1), objectives.max(axis=1)
    for place in np.lexsort((-objective, candidate)).tolist():  # ties go to the first feature
        condition = Condition(int(feature[first[place]]), tuple(values[place, : last[place] + 1].tolist()))
        yield int(candidate[place]), condition, float(objective[place])


def _objectives(
    owners: Sequence[tuple[_Search, RuleCandidate]],
    true_positives: NDArray[np.float64],
    false_positives: NDArray[np.float64],
) -> NDArray[np.float64]:
    columns = [
        (len(search.expert.positives_P), search.num_inactive, search.expert.density, len(owner.rule))
        for search, owner in owners
    ]
    positives, inactive, density, conditions = (column[:, None] for column in np.array(columns).T)
    recall = true_positives / positives
    false_positive_rate = (false_positives + 0.5) / (inactive + 1)
    matching_active, matching_inactive = recall * density, false_positive_rate * (1 - density)
    precision = matching_active / (matching_active + matching_inactive)
    objectives = 2 * precision * recall / (precision + recall)
    penalties = VALUE_PENALTY * np.arange(true_positives.shape[1]) + CONDITION_PENALTY * conditions
    return np.asarray(objectives - penalties)


def describe_rule(rule: Rule, vocabularies: Mapping[str, Vocabulary]) -> str:
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
    separator = f"“{DOCUMENT_SEPARATOR}”"
    quoted = [f"“{visible(text)}”".replace(separator, "the end of a document") for text in texts]
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
    table, created = AutomaticLabelRecord, {"run_id": run_id, "labeller": LABELLER, "created_at": utc_now()}
    with writing(database) as session:
        session.execute(delete(table).where(table.run_id == run_id, table.labeller == LABELLER))
        if labels:
            session.execute(insert(table), [{**label, **created} for label in labels])

    def mean(score: str) -> float | None:
        known = [label[score] for label in labels if label[score] is not None]
        return sum(known) / len(known) if known else None

    return LabelResult(
        run=run.name,
        experts=int((corpus.density_N > 0).sum()),
        labelled=len(labels),
        balanced_accuracy=mean("balanced_accuracy"),
        precision=mean("precision"),
        recall=mean("recall"),
        seconds=time.perf_counter() - started,
    )


def _find_labels(corpus: Corpus, callbacks: Callbacks) -> Iterator[dict[str, Any]]:
    """Yield columns of ``AutomaticLabelRecord``."""
    held_out = corpus.held_out_T[corpus.sample]
    finding = BackgroundTokens(corpus.features_FT, corpus.sample[~held_out])
    testing = BackgroundTokens(corpus.features_FT, corpus.sample[held_out])
    experts = np.flatnonzero(corpus.density_N > 0).tolist()
    num_labels = 0
    for start in range(0, len(experts), EXPERTS_AT_A_TIME):
        callbacks.check_cancelled()
        some = experts[start : start + EXPERTS_AT_A_TIME]
        parts = ([_part(corpus, expert, is_held_out) for is_held_out in (False, True)] for expert in some)
        chosen = [
            (expert, own, other)
            for expert, (own, other) in zip(some, parts, strict=True)
            if min(len(own.positives_P), len(other.positives_P)) >= MIN_EXAMPLES and len(finding.tokens_B)
        ]
        rules = find_rules(finding, [own for _, own, _ in chosen])
        for (expert, _, other), best in zip(chosen, rules, strict=True):
            if best is not None and best.objective >= MIN_OBJECTIVE:
                score = score_rule(best.rule, testing, other.positives_P, other.active)
                num_labels += 1
                label = describe_rule(best.rule, corpus.extractor.vocabularies)
                yield {"expert": expert, "label": label, **score}
        done = min(start + EXPERTS_AT_A_TIME, len(experts))
        callbacks.on_progress(done, len(experts), f"{num_labels:,} labels")


def _part(corpus: Corpus, expert: int, is_held_out: bool) -> ActiveTokens:
    """Tokens of an expert in the sequences that are held out, or in the others."""
    tokens = (corpus.examples.for_expert(expert), corpus.active.for_expert(expert))
    examples, active = (each[corpus.held_out_T[each] == is_held_out] for each in tokens)
    return ActiveTokens(examples, active, float(corpus.density_N[expert]))


def score_rule(rule: Rule, testing: BackgroundTokens, examples: Indices, active: Indices) -> dict[str, float | None]:
    """Score a rule on the peak tokens of the held-out examples and on a held-out sample, with the tokens of the sample
    on which the expert is active, ascending. Returns columns of ``AutomaticLabelRecord``: precision is None if the rule
    matches no token of the sample, recall if the expert is active on none."""
    matched = testing.matching(rule)
    true_positives = int(is_among(matched, active).sum())
    inactive_tokens = len(testing.tokens_B) - len(active)
    false_positive_rate = (len(matched) - true_positives) / max(inactive_tokens, 1)
    example_recall = float(matches(testing.features_FT, rule, examples).mean())
    return {
        "balanced_accuracy": (example_recall + 1 - false_positive_rate) / 2,
        "precision": true_positives / len(matched) if len(matched) else None,
        "recall": true_positives / len(active) if len(active) else None,
        "test_examples": len(examples),
    }
