"""Search by text in labels, top tokens and top examples, by related words, and by activity on a passage."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sqlalchemy.orm import Session

from mxd.backend.database.engine import StoredExample, among
from mxd.backend.inference.run_loader import Vocabulary, fold
from mxd.backend.queries.automatic_labels import FEATURES, both_labels, is_inside_word
from mxd.backend.queries.coactivation import MIN_EVENTS
from mxd.backend.queries.examples import described, stored_examples
from mxd.backend.queries.expert_table import BrowsedRun, TokenIndex
from mxd.backend.queries.experts import known, top_tokens
from mxd.backend.schemas.experts import Example, Labelled, Matched, SearchHit, SearchResult
from mxd.backend.schemas.routing import PassageHit, PassageRequest, PassageResult, PassageToken
from mxd.trainer.analysis.labelling.features import PRECEDING, conditions_of
from mxd.trainer.config.analysis import FUNCTION_WORDS
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.search import (
    SEARCH_MARGIN,
    best_experts_with,
    experts_with,
    is_beginning,
    split_words,
)
from mxd.trainer.storage.database.tables import ExampleRecord, RunRecord
from mxd.trainer.utils.bootstrap import wilson_interval

if TYPE_CHECKING:
    from mxd.trainer.inference.results import RoutedToken, Routing

Hit = dict[str, Any]
"""Fields of a ``SearchHit`` but those that ``with_matches`` adds."""
SearchText = Annotated[str, Field(min_length=1, max_length=200)]
Ints = NDArray[np.int32]
MAX_WORDS = 16
CANDIDATES = 2_000
"""Number of matching experts to rank; the ranking matters little for words that match nearly everywhere."""
PUNCTUATION = ".,;:!?\"'()[]“”‘’«»…。、，！？：；「」（）"  # noqa: RUF001
"""Marks that are ignored around a typed word; alone, they are searched."""
MAX_RANKED = 100
"""Maximum number of results."""
BATCH = 24
"""Experts whose examples are read at a time."""
RANKS = (0, 4, 1_000_000)
"""Rank limits of the examples to search in turn; one of the first nearly always matches."""

MAX_USERS = 10
"""Words on which more experts of 4,096 fire say little about any of them."""
MIN_USER_SHARE = 0.02
RELATED_WORDS = 40
MIN_RELATED_SCORE = 0.02
LABEL_SHARE = 0.5
"""A related word in a label counts as the token that half of the expert's active tokens are."""

TOP_EXAMPLES = 8
"""Strongest examples of an expert that are compared with the searched words."""

MIN_END_SHARE = 0.05
"""Share of an expert's tokens from which ends of words, such as “ing”, are found beside words that are equal."""

EXPERT_NUMBER = re.compile(r"\s*(?:expert\s*|#)?(\d{1,9})\s*", re.IGNORECASE | re.ASCII)


def words_of(typed: str) -> list[str]:
    """Return the words and symbols of a query, without the punctuation marks around words."""
    words = typed.replace("\0", " ").split()
    bare = ((word.strip(PUNCTUATION), word) for word in words if split_words(word))
    return [core if any(map(str.isalnum, core)) else word for core, word in bare][:MAX_WORDS]


def labelled_like(browsed: BrowsedRun, typed: str) -> list[int]:
    """Return the experts whose user label contains ``typed``: equal labels, whole words, beginnings of words."""
    folded = fold(typed)
    labels = ((expert, fold(label)) for expert, label in browsed.labels.items())
    word = re.compile(rf"(?<!\w){re.escape(folded)}(?!\w)")
    ranked = [
        (label != folded, word.search(label) is None, not label.startswith(folded), expert)
        for expert, label in labels
        if any(
            not is_inside_word(label[at.start() - 1 : at.start()], folded)
            for at in re.finditer(re.escape(folded), label)
        )
    ]
    return [expert for *_, expert in sorted(ranked)]


def automatically_labelled_like(browsed: BrowsedRun, typed: str) -> list[int]:
    """Return the experts without a user label whose automatic label contains ``typed``, best labels first."""
    return [expert for expert in browsed.automatic.like(typed.strip()) if expert not in browsed.labels]


def find_experts(session: Session, browsed: BrowsedRun, tokens: TokenIndex, typed: str, vocabulary: Vocabulary) -> Ints:
    """Return the experts with ``typed`` in a label, a top token or an example. May have duplicates."""
    labelled: list[int] = []
    if typed.strip():
        labelled += labelled_like(browsed, typed)
        labelled += automatically_labelled_like(browsed, typed)
    labelled += _token_users(tokens, typed, len(tokens.expert), vocabulary)
    words = tuple(words_of(typed))
    in_examples = experts_with(session, browsed.record.id, words) if words else np.zeros(0, np.int32)
    return np.concatenate([np.array(labelled, np.int32), in_examples])


def _token_users(tokens: TokenIndex, typed: str, count: int, vocabulary: Vocabulary) -> dict[int, tuple[int, float]]:
    """Return the experts with the largest shares on a token that begins with ``typed``, with that token and share. Of
    tokens inside words, such as “angers” of “bangers”, small shares do not count."""
    matching = vocabulary.prefix_matches(typed)
    beginning = set(_beginning_words(matching, vocabulary))
    return {
        expert: (token, share)
        for expert, (token, share) in tokens.strongest_users(matching, count).items()
        if token in beginning or share >= MIN_END_SHARE
    }


def best_experts(session: Session, browsed: BrowsedRun, typed: str) -> tuple[int, ...]:
    """Return the ``MAX_RANKED`` experts whose examples match ``typed`` best, best first. Whole words come before prefix
    matches of the last word. Prefixes are searched only if there is room left, because they take ten times as long for
    common words."""
    words = tuple(words_of(typed))
    if not words:
        return ()
    run_id, limits = browsed.record.id, (CANDIDATES, MAX_RANKED)
    ranked = best_experts_with(session, run_id, words, "whole", *limits)
    if len(ranked) >= MAX_RANKED or not is_beginning(words[-1]):
        return ranked
    beginning = best_experts_with(session, run_id, words, "beginning", *limits)
    return tuple(dict.fromkeys([*ranked, *beginning]))[:MAX_RANKED]


def best_examples(
    session: Session, browsed: BrowsedRun, typed: str, experts: Sequence[int], most: int, vocabulary: Vocabulary
) -> dict[int, Example]:
    """Return expert -> first top example with all words of ``typed`` around its peak, one per sequence, for about
    ``most`` experts. In each batch, experts whose peak is a typed word come first."""
    words = [f" {' '.join(split_words(word))} " for word in words_of(typed)]
    if words and is_beginning(words_of(typed)[-1]):
        words[-1] = words[-1][:-1]
    found: dict[int, StoredExample] = {}
    taken: set[int] = set()
    for start in range(0, len(experts), BATCH):
        if len(found) >= most:
            break
        batch = experts[start : start + BATCH]
        at_peak: dict[int, bool] = {}
        chosen: dict[int, StoredExample] = {}
        for low, high in pairwise(RANKS):
            left = [expert for expert in batch if expert not in chosen]
            ranked = ExampleRecord.bin == 0, ExampleRecord.rank >= low, ExampleRecord.rank < high
            of_experts = ExampleRecord.run_id == browsed.record.id, among(session, ExampleRecord.expert, left)
            fitting = [
                (not is_at_peak, batch.index(row.expert), row.rank, row)
                for row in (stored_examples(session, [*of_experts, *ranked]) if left else ())
                if (is_at_peak := match_at_peak(row, words, vocabulary)) is not None
            ]
            for is_beside, _, _, row in sorted(fitting):
                if row.expert not in chosen and row.sequence not in taken:
                    chosen[row.expert], at_peak[row.expert] = row, not is_beside
                    taken.add(row.sequence)
        found |= {
            expert: chosen[expert] for expert in sorted(chosen, key=lambda each: (not at_peak[each], batch.index(each)))
        }
    return {expert: Example.model_validate(described(row, vocabulary)) for expert, row in found.items()}


def match_at_peak(row: StoredExample, words: Sequence[str], vocabulary: Vocabulary) -> bool | None:
    """Return whether one of ``words`` is at the peak of an example, or None if not all are around it."""
    first = max(0, row.position - 2 * SEARCH_MARGIN)
    texts = vocabulary.texts(row.token_ids[first : row.position + SEARCH_MARGIN + 1])
    around, at_peak = (
        f" {' '.join(_words_from(token - first, texts))} "
        for token in (max(0, row.position - SEARCH_MARGIN), row.position)
    )
    return at_peak.startswith(tuple(words)) if all(word in around for word in words) else None


def peak_word(row: StoredExample, vocabulary: Vocabulary) -> str:
    """Return the whole word at the peak of an example; empty at white space."""
    first = max(0, row.position - SEARCH_MARGIN)
    texts = vocabulary.texts(row.token_ids[first : row.position + SEARCH_MARGIN + 1])
    at_peak = row.position - first
    return _words_from(at_peak, texts)[0] if split_words(texts[at_peak]) else ""


def _words_from(token: int, texts: Sequence[str]) -> list[str]:
    """Return the words from a token on, with the beginning of its own: a search document may begin inside a word, as
    “angers” of “bangers”."""
    while token > 0 and is_inside_word(texts[token - 1][-1:], texts[token]):
        token -= 1
    return split_words("".join(texts[token:]))


def search_run(
    session: Session, browsed: BrowsedRun, token_index: TokenIndex, typed: str, related: Mapping[str, float] | None,
    limit: int, vocabulary: Vocabulary,
) -> SearchResult:  # fmt: skip
    """Return the matching experts of a run, best first, at most ``limit`` for each of the words and the related words.

    Args:
        related: words in lower case with their relation to ``typed`` from 0 to 1, strongest first; None to search
            ``typed`` only.
    """
    hits = {hit["expert"]: hit for hit in _direct_hits(session, browsed, token_index, typed, limit, vocabulary)}
    words, closeness = tuple[str, ...](), closeness_of_words(typed)
    if related is not None:
        words, others = related_hits(browsed, token_index, typed, related, limit, vocabulary)
        closeness = {word: related[word] for word in words} | closeness
        # A related word says more than the text of an example.
        in_examples = {expert for expert, hit in hits.items() if hit["matched"] == "example"}
        hits |= {hit["expert"]: hit for hit in others if hit["expert"] in in_examples or hit["expert"] not in hits}
    found = with_matches(session, browsed, hits, closeness, vocabulary)
    return SearchResult(words=words, hits=tuple(sorted(found, key=best_first)[:limit]))


def merged(results: Sequence[SearchResult]) -> SearchResult:
    """Return the experts of several layers, best first, with each example once."""
    hits, seen = list[SearchHit](), set[tuple[int, ...]]()
    for hit in sorted((hit for result in results for hit in result.hits), key=best_first):
        ids = hit.example.token_ids if hit.example and hit.matched == "example" else None
        if ids is None or ids not in seen:
            hits.append(hit)
            seen |= {ids} if ids else set()
    words = dict.fromkeys(word for result in results for word in result.words)
    return SearchResult(words=tuple(words), hits=tuple(hits))


def best_first(hit: SearchHit) -> tuple[float, ...]:
    """Sort key: the typed number, user labels and then clear labels that name the text, the closest words on which the
    strongest examples fire, words on which the expert fires before those elsewhere in an example. Ties: clear labels,
    then the largest share of active tokens on the matching word."""
    is_users = hit.is_named and hit.label is not None
    by_name = hit.matched != "id", not is_users, not hit.is_named
    ties = hit.is_weak, -hit.closeness, -(hit.token_share or 0.0), hit.layer
    return *by_name, -round(hit.closeness, 2), hit.matched == "example", *ties


def _direct_hits(
    session: Session, browsed: BrowsedRun, token_index: TokenIndex, typed: str, limit: int, vocabulary: Vocabulary
) -> list[Hit]:
    """Return the experts with ``typed`` as their number, in their label, in a token or in an example."""
    matched: dict[int, Matched] = {}
    number = EXPERT_NUMBER.fullmatch(typed)  # as in ``46`` or ``expert 46``
    if number and int(number[1]) < browsed.record.num_experts:
        matched[int(number[1])] = "id"
    for expert in labelled_like(browsed, typed)[:MAX_RANKED]:
        matched.setdefault(expert, "label")
    named = automatically_labelled_like(browsed, typed) if typed.strip() else []
    for expert in named[: max(MAX_RANKED - len(matched), 0) // 3]:
        matched.setdefault(expert, "label")
    # Reserve room for examples, so that a common token does not hide them.
    room = max(MAX_RANKED - len(matched), 0) * 2 // 3
    users = _token_users(token_index, typed, room, vocabulary)
    for expert in users:
        matched.setdefault(expert, "token")
    examples: dict[int, Example] = {}
    if len(matched) < limit:
        others = [each for each in best_experts(session, browsed, typed) if each not in matched]
        examples = best_examples(session, browsed, typed, others, limit - len(matched), vocabulary)
        matched |= dict.fromkeys(examples, "example")
    tokens = {expert: (vocabulary.name(token), share) for expert, (token, share) in users.items()}
    hits = [
        _hit(browsed, expert, how, examples.get(expert), tokens.get(expert) if how == "token" else None)
        for expert, how in islice(matched.items(), limit)
    ]
    return [hit | {"is_named": hit["matched"] == "label" and _names(hit, typed)} for hit in hits]


def _names(hit: Hit, typed: str) -> bool:
    """Return whether a label with ``typed`` says that the expert fires on it, not on what follows it. Of a rule, the
    conditions on the token say so. Other labels have no parts."""
    if hit["label"] is not None or hit["automatic"] is None:
        return hit["label"] is not None
    label: str = hit["automatic"]["label"]
    conditions = conditions_of(label) if hit["automatic"]["labeller"] == FEATURES else None
    if conditions is None:
        return fold(typed) in fold(label)
    named = (value for part, values in conditions.items() if part not in PRECEDING for value in values)
    return any(fold(typed) in fold(value) for value in named)


def closeness_of_words(typed: str) -> dict[str, float]:
    """Return the words of a query but function words, in lower case, with their relation to it: alone, a word is all
    of it."""
    own = [fold(word) for word in words_of(typed) if fold(word) not in FUNCTION_WORDS]
    return dict.fromkeys(own, 1.0 if len(own) == 1 else 0.5)


def with_matches(
    session: Session, browsed: BrowsedRun, hits: Mapping[int, Hit], closeness: Mapping[str, float],
    vocabulary: Vocabulary,
) -> Iterator[SearchHit]:  # fmt: skip
    """Yield the hits of experts with the number of their top examples that fire on a word of ``closeness``, and its
    mean there."""
    top = ExampleRecord.bin == 0, ExampleRecord.rank < TOP_EXAMPLES
    of_experts = among(session, ExampleRecord.expert, hits)
    matches_of: defaultdict[int, list[float]] = defaultdict(list)
    for row in stored_examples(session, [ExampleRecord.run_id == browsed.record.id, of_experts, *top]):
        matches_of[row.expert].append(closeness.get(peak_word(row, vocabulary), 0.0))
    records = known(session, browsed.record, hits)
    for expert, hit in hits.items():
        matches, record = matches_of[expert], records.get(expert)
        yield SearchHit(
            **hit,
            top_examples=len(matches),
            matching_examples=sum(one > 0 for one in matches),
            closeness=sum(matches) / max(1, len(matches)),
            density=record.density if record else 0.0,
            top_tokens=top_tokens(record, vocabulary) if record else (),
        )


def related_hits(
    browsed: BrowsedRun, token_index: TokenIndex, typed: str, related: Mapping[str, float], limit: int,
    vocabulary: Vocabulary,
) -> tuple[tuple[str, ...], list[Hit]]:  # fmt: skip
    """Return the related words on which few experts fire, and the experts that fire on them or on the words of
    ``typed``, or whose label names one."""
    most_users = MAX_USERS * max(1.0, browsed.record.num_experts / 4096)
    tokens_of = {word: _beginning_words(vocabulary.exact_matches(word), vocabulary) for word in related}
    rare = (
        word
        for word, tokens in tokens_of.items()
        if tokens and token_index.num_users(tokens, MIN_USER_SHARE) <= most_users
    )
    looked_up = list(islice(rare, RELATED_WORDS))
    weights = {token: related[word] for word in looked_up for token in tokens_of[word]}
    for word, weight in closeness_of_words(typed).items():
        weights |= dict.fromkeys(_beginning_words(vocabulary.exact_matches(word), vocabulary), weight)
    active = browsed.columns.values["active_tokens"]
    found = {
        expert: (score, _hit(browsed, expert, "related", None, (vocabulary.name(token), share), score))
        for expert, score, token, share in token_index.weighted_users(weights)
        # Rarer experts fire on a word by chance.
        if score >= MIN_RELATED_SCORE and active[np.searchsorted(browsed.columns.expert, expert)] >= MIN_EVENTS
    }
    named: defaultdict[int, dict[str, float]] = defaultdict(dict)  # expert -> word of its label -> score
    for word, relation in related.items():
        for expert, share in browsed.automatic.naming.get(word, ()):
            if expert not in found:
                named[expert][word] = LABEL_SHARE * relation * share
    for expert, label in browsed.labels.items():
        score, word = max(
            ((LABEL_SHARE * related.get(fold(word), 0.0), word) for word in words_of(label)), default=(0.0, "")
        )
        named[expert] = {word: score}
    for expert, scores in named.items():
        score = sum(scores.values())
        if score > found.get(expert, (MIN_RELATED_SCORE, None))[0]:
            hit = _hit(browsed, expert, "label", None, None, score)
            found[expert] = score, hit | {"word": max(scores, key=lambda word: scores[word])}
    best = sorted(found.items(), key=lambda entry: (-entry[1][0], entry[0]))
    return tuple(looked_up), [hit for _, (_, hit) in best[:limit]]


def _beginning_words(tokens: Sequence[int], vocabulary: Vocabulary) -> Sequence[int]:
    """Return the tokens that begin a word, or all if none does. Without a space, “anger” mostly ends “danger”."""
    return [token for token in tokens if vocabulary.name(token).startswith(" ")] or tokens


def _hit(
    browsed: BrowsedRun,
    expert: int,
    matched: Matched,
    example: Example | None,
    token: tuple[str, float] | None,
    relation: float | None = None,
) -> Hit:
    return {
        "run": browsed.record.name,
        "layer": browsed.record.layer,
        "expert": expert,
        "label": browsed.labels.get(expert),
        "automatic": browsed.automatic.of(expert),
        "matched": matched,
        "is_named": False,
        "word": None,
        "token": token and token[0],
        "token_share": token and token[1],
        "relation": relation,
        "example": example,
    }


def firing(active: Sequence[tuple[int, float]], tokens: int, density: float | None) -> dict[str, Any]:
    """Return the fields of a ``PassageHit`` that follow from the (position, activation) pairs of an expert on
    ``tokens`` considered tokens. Dead and unindexed experts have no lift."""
    share = len(active) / tokens
    # The passage has far fewer tokens than the index, so only its share has an interval.
    lifts = [each / density if density else None for each in (share, *wilson_interval(share, tokens))]
    return {
        "active": tuple(active),
        "mass": sum(activation for _, activation in active),
        "share": share,
        "density": density,
        **dict(zip(("lift", "lift_low", "lift_high"), lifts, strict=True)),
        "peak": max(active, key=lambda pair: pair[1])[0],
    }


def firings(tokens: Sequence[RoutedToken], position: int | None) -> dict[int, list[tuple[int, float]]]:
    """Return expert -> (position, activation) on the considered tokens. Raises UserError if the position is out of
    range."""
    if position is not None and position >= len(tokens):
        raise UserError(f"Unknown token {position}. The passage has tokens 0 to {len(tokens) - 1}.")
    firing: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for place, token in enumerate(tokens):
        if place == position or (position is None and not token.start):
            for expert in token.experts:
                firing[expert.expert].append((place, expert.activation))
    return firing


def ranked(firings_of: Mapping[int, dict[str, Any]], request: PassageRequest, weak: Collection[int] = ()) -> list[int]:
    """Return the experts within the bounds, best first, and ``weak`` ones last if asked. By lift, the lower end of its
    interval counts. Experts that are active once come later, because one token of a rare expert has a huge lift. Those
    whose interval includes 1 and those without a density come last."""
    low, high = request.min_density, request.max_density
    best = {
        expert: found
        for expert, found in firings_of.items()
        if (low is None or (found["density"] or 0.0) >= low) and (high is None or (found["density"] or 0.0) <= high)
    }
    is_lift = request.by == "lift"

    def key(expert: int) -> tuple[float, ...]:
        found = best[expert]
        by = found["lift_low" if is_lift else "mass"] or 0.0
        late = 0 if not is_lift else 1 if len(found["active"]) < 2 else 2 * (by <= 1)
        return request.weak_last and expert in weak, late, -by, -found["mass"], expert

    return sorted(best, key=key)


def passage_result(
    session: Session, run: RunRecord, routing: Routing, request: PassageRequest, vocabulary: Vocabulary
) -> PassageResult:
    """Return the ranked experts of a routed passage. Raises UserError if the position is out of range."""
    active = firings(routing.tokens, request.position)
    num_tokens = 1 if request.position is not None else max(sum(not token.start for token in routing.tokens), 1)
    records = known(session, run, active)
    firings_of = {
        expert: firing(pairs, num_tokens, records[expert].density if expert in records else None)
        for expert, pairs in active.items()
    }
    labels = {expert: Labelled(**both) for expert, both in both_labels(session, run, active).items()}
    best = ranked(firings_of, request, {expert for expert, names in labels.items() if names.is_weak})
    hits = tuple(
        PassageHit(
            expert=expert,
            **firings_of[expert],
            **dict(labels[expert]),
            max_activation=record.max_activation if record else None,
            top_tokens=top_tokens(record, vocabulary) if record else (),
        )
        for expert in best[: request.limit]
        for record in [records.get(expert)]
    )
    return PassageResult(
        run=run.name,
        tokens=tuple(PassageToken(id=token.id, text=token.text, start=token.start) for token in routing.tokens),
        hits=hits,
        matching=len(best),
        firing=len(active),
    )
