"""Data for labelling, read from the database: token features, every expert's examples, and the routed sample.

Features of a token are categorical, and computed from the token, its word and the preceding text. Each feature has a
vocabulary of values. Value 0 means that the feature does not apply. Text after the token's word is not used (except to
detect the language), because an expert cannot see it.

Labels of rules are read back as conditions on these features. The database stores the text of a label, not its rule.
Quoted text may be a token or a word, so a match is what a reader of the label would count as one.

Shapes: F features, T tokens of all stored sequences, P (expert, token) pairs, L tokens of a sequence, S languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.errors import DamagedDatabaseError, UserError
from mxd.trainer.inference.units import column_values
from mxd.trainer.language_model.tokenizer import DOCUMENT_SEPARATOR, start_token_name, token_texts
from mxd.trainer.storage.database.column_types import TOKEN_IDS, unpack_routed
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import ExampleRecord, RoutedRecord, RunRecord, SequenceRecord
from mxd.trainer.utils.callbacks import Callbacks

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BLOCK_SEQUENCES = 4
"""Sequences per held-out block. Neighbouring sequences stay together, because a document may span several."""

_BREAKS = str.maketrans({"\n": "↵", "\t": "⇥", "\r": ""})
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class TokensByExpert:
    """Token indices grouped by expert."""

    indices: Indices
    """Token indices, [P], expert by expert."""
    offsets: Indices
    """Offset of each expert's first index, [N + 1]."""

    def for_expert(self, expert: int) -> Indices:
        return self.indices[self.offsets[expert] : self.offsets[expert + 1]]

    @classmethod
    def from_pairs(cls, expert_P: Indices, token_P: Indices, num_experts: int) -> TokensByExpert:
        """Group (expert, token) pairs by expert and drop duplicates."""
        if len(expert_P) != len(token_P):
            raise DamagedDatabaseError
        # One number per pair: sorting rows of pairs takes ten times as long.
        num_tokens = int(token_P.max(initial=0)) + 1
        pairs_P = np.sort(expert_P * num_tokens + token_P)
        # As np.unique, in a fifth of the time.
        is_first_P = np.append(True, pairs_P[1:] != pairs_P[:-1])[: len(pairs_P)]
        expert_P, token_P = np.divmod(pairs_P[is_first_P], num_tokens)
        return cls(token_P, np.searchsorted(expert_P, np.arange(num_experts + 1)))


@dataclass(frozen=True)
class Corpus:
    """Features of every stored token, and the tokens on which each expert is active."""

    extractor: FeatureExtractor
    features_FT: NDArray[np.int32]
    held_out_T: NDArray[np.bool_]
    """True for tokens that are held out for testing."""
    examples: TokensByExpert
    """Peak tokens of each expert's stored examples."""
    sample: Indices
    """All tokens of the routed sample, ascending."""
    active: TokensByExpert
    """Tokens of the sample on which each expert is active."""
    density_N: NDArray[np.float64]


def read_corpus(session: Session, run: RunRecord, tokenizer: PreTrainedTokenizerBase, callbacks: Callbacks) -> Corpus:
    """Read the data for labelling. Raises UserError if the run is not indexed."""
    density_N = column_values(session, run, ExpertRecord.density)
    query = select(SequenceRecord.sequence, SequenceRecord.token_ids).where(SequenceRecord.run_id == run.id)
    rows = session.execute(query.order_by(SequenceRecord.sequence)).all()
    sequence_ids = [row.sequence for row in rows]
    sequences = [np.frombuffer(row.token_ids, TOKEN_IDS).astype(np.int64) for row in rows]
    if not sequence_ids:
        raise UserError(f"{run.name} is not indexed. Run 'mxd index {run.name}'.")
    lengths = np.array([len(ids) for ids in sequences])
    starts = np.concatenate([[0], lengths.cumsum()])
    offsets = np.full(max(sequence_ids) + 1, -1)
    offsets[sequence_ids] = starts[:-1]
    extractor = FeatureExtractor(start_token_name(tokenizer, run.config["text"].get("start_token")))
    features_FT = np.zeros((len(FEATURES), starts[-1]), np.int32)
    for number, ids in enumerate(sequences):
        callbacks.check_cancelled()
        features_FT[:, starts[number] : starts[number + 1]] = extractor.extract(token_texts(tokenizer, ids.tolist()))
    query_examples = select(ExampleRecord.expert, ExampleRecord.sequence, ExampleRecord.position)
    examples = session.execute(query_examples.where(ExampleRecord.run_id == run.id))
    # np.array on rows of SQLAlchemy asks each for its attributes.
    experts_R, sequences_R, positions_R = np.fromiter(chain.from_iterable(examples), np.int64).reshape(-1, 3).T
    tokens, experts, active_tokens = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    sampled = select(RoutedRecord).where(RoutedRecord.run_id == run.id).order_by(RoutedRecord.sequence)
    for record in session.scalars(sampled):
        counts, active = unpack_routed(record.counts, record.experts, run.num_experts)
        indices = offsets[record.sequence] + np.arange(len(counts))
        tokens.append(indices)
        experts.append(active)
        active_tokens.append(np.repeat(indices, counts))
    active_pairs = np.concatenate(experts), np.concatenate(active_tokens)
    return Corpus(
        extractor=extractor,
        features_FT=features_FT,
        held_out_T=np.repeat(np.array(sequence_ids) // BLOCK_SEQUENCES % 2 == 1, lengths),
        examples=TokensByExpert.from_pairs(experts_R, offsets[sequences_R] + positions_R, run.num_experts),
        sample=np.concatenate(tokens),
        active=TokensByExpert.from_pairs(*active_pairs, run.num_experts),
        density_N=density_N,
    )


LANGUAGE_WINDOW = 24
"""Tokens on either side used to detect the language."""
MIN_MARKERS = 2
"""Marker words required to detect a language."""
MIN_RATIO = 1.5
"""Required ratio between the marker words of the best and the second-best language."""
LANGUAGE_MARKERS: dict[str, str] = {
    "English": "the and of to was that with his her he she they were have had for this which from you not but is are",
    "French": "le la les des une est et que qui dans pour pas elle il du au sur avec ne plus ce cette nous vous je",
    "German": "der die das und ist nicht ein eine den dem mit sich auf für von zu im werden oder auch als wenn ich",
    "Spanish": "el los las una que en y es por con para del se no lo su como más pero al ella él yo",
    "Italian": "il che di è per una sono con non della gli nel più anche ma dei alla",
    "Portuguese": "o os uma não em um é com do da para mais ao seu sua pelo você",
    "Dutch": "het een van en niet zijn dat op te voor met aan ook maar wordt",
    "Python code": "def self elif None True False import __init__ isinstance lambda raise yield kwargs",
    "C code": "#include void char struct static sizeof NULL int unsigned const printf typedef",
    "JavaScript code": "function const let var typeof undefined => === null async await",
    "HTML": "div href span li ul class= </ <p> <a html head body",
    "CSS": "px margin padding border background color display font em rgba width height",
    "mathematics": "\\frac \\( $$ theorem lemma proof",
}
LANGUAGES: tuple[str, ...] = ("", *LANGUAGE_MARKERS)
"""Language names by id. Id 0 means that no language was detected."""


def detect_languages(hits_LS: NDArray[np.int32]) -> NDArray[np.int32]:
    """Language around each token, [L], from the number of marker words of each language that begin at each token."""
    length = len(hits_LS)
    sums = np.concatenate([np.zeros((1, hits_LS.shape[1]), np.int64), hits_LS.cumsum(axis=0)])
    first = np.maximum(np.arange(length) - LANGUAGE_WINDOW, 0)
    last = np.minimum(np.arange(length) + LANGUAGE_WINDOW + 1, length)
    around = sums[last] - sums[first]
    best = around.argmax(axis=1)
    most = around[np.arange(length), best]
    around[np.arange(length), best] = 0
    clear = (most >= MIN_MARKERS) & (most >= MIN_RATIO * around.max(axis=1))
    return np.where(clear, best, 0).astype(np.int32)


FEATURES = ("token", "word", "before", "before_two", "kind", "kind_before", "start", "ending", "inside", "language")
"""Names of the features:

- token: the token's text.
- word: the word that contains it.
- before: the preceding token.
- before_two: the two preceding tokens.
- kind: the token's category.
- kind_before: the preceding token's category.
- start: the unit that begins with the token (sentence, line or document).
- ending: its last letters.
- inside: the enclosing brackets or quotation marks.
- language: the language of the text around it.
"""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*['’]?")
_OPENING, _CLOSING, _QUOTES = "([{⟨", ")]}⟩", '"“”«»„'
_ENCLOSING = frozenset(_OPENING + _CLOSING + _QUOTES)
_SENTENCE_END = re.compile(r"[.!?…][\"”»')\]]*\s*$")
ENDING_LETTERS = 3


class Vocabulary(dict[str, int]):
    """Text -> id, in order of first occurrence. A new text gets the next id. Id 0 is the empty text."""

    def __init__(self) -> None:
        super().__init__({"": 0})
        self.texts = [""]
        """All texts, by id."""

    def __missing__(self, text: str) -> int:
        self[text] = number = len(self.texts)
        self.texts.append(text)
        return number

    def get_ids(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Ids of texts, which are added if they are new."""
        return np.fromiter(map(self.__getitem__, texts), np.int32, len(texts))


class FeatureExtractor:
    """Extracts the features of tokens, with a shared vocabulary per feature."""

    def __init__(self, separator: str) -> None:
        """Create empty vocabularies. ``separator`` is the text of the token that precedes every document."""
        self.separator = separator
        self.vocabularies = {name: Vocabulary() for name in FEATURES}
        self.vocabularies["language"].get_ids(LANGUAGES[1:])
        self._markers: dict[str, list[int]] = {}
        """Ids of the languages of each marker word."""
        for number, words in enumerate(LANGUAGE_MARKERS.values(), start=1):
            for word in words.split():
                self._markers.setdefault(word, []).append(number)

    def extract(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """Extract the features of each token of a sequence, [F, L]."""
        starts = np.cumsum([0, *(len(text) for text in texts)])
        whole = "".join(texts)
        words = self._words_at(whole, starts)
        kinds = [token_kind(text, word) for text, word in zip(texts, words, strict=True)]
        parts = [_part(text) for text in texts]
        texts_by_feature: dict[str, list[str]] = {
            "token": list(texts),
            "word": words,
            "before": ["", *parts[:-1]],
            "before_two": ["", "", *("".join(pair).strip().lower() for pair in pairwise(texts))],
            "kind": kinds,
            "kind_before": ["", *kinds[:-1]],
            "start": self._starts(texts),
            "ending": [_ending(text) for text in texts],
            "inside": _insides(texts),
        }
        rows = [self.vocabularies[name].get_ids(values[: len(texts)]) for name, values in texts_by_feature.items()]
        hits_LS = np.zeros((len(texts), len(LANGUAGES)), np.int32)
        for match in re.finditer(r"#?\w+=?|[^\w\s]{2,}", whole):
            for number in self._markers.get(match.group(), ()):
                hits_LS[int(np.searchsorted(starts, match.start(), side="right")) - 1, number] += 1
        return np.stack([*rows, detect_languages(hits_LS)])

    def _words_at(self, whole: str, starts: NDArray[np.int64]) -> list[str]:
        """Word that contains each token, in lower case; empty if there is none."""
        words = [""] * (len(starts) - 1)
        matches = list(_WORD.finditer(whole))
        firsts = (np.searchsorted(starts, [match.start() for match in matches], side="right") - 1).tolist()
        lasts = np.searchsorted(starts, [match.end() for match in matches], side="left").tolist()
        for match, first, last in zip(matches, firsts, lasts, strict=True):
            for index in range(first, min(last, len(words))):
                words[index] = words[index] or match.group().lower()
        return words

    def _starts(self, texts: Sequence[str]) -> list[str]:
        result, before = [], ""
        for text in texts:
            if before == self.separator:
                result.append("the start of a document")
            elif before.rstrip(" \t").endswith("\n") and text.strip():
                result.append("the start of a line")
            elif _sentence_end(before) and text.strip() and not text.strip()[0].islower():
                result.append("the start of a sentence")
            else:
                result.append("")
            before = text if text.strip(" ") or not before.endswith("\n") else before
        return result


# Texts repeat, so their properties are cached.
cached = lru_cache(1 << 16)


@cached
def _part(text: str) -> str:
    return text.strip(" ").lower() or text


_sentence_end = cached(_SENTENCE_END.search)


@cached
def token_kind(text: str, word: str) -> str:
    """Category of a token, in the plural."""
    body = text.strip(" ")
    if not body:
        return "spaces" if text else ""
    if not body.strip():
        return "line breaks"
    if body.isdigit():
        return "numbers"
    if body[0].isalpha():
        return _kind_of_word(text, body, word)
    for kind, signs in (("opening brackets", _OPENING), ("closing brackets", _CLOSING), ("quotation marks", _QUOTES)):
        if body[0] in signs:
            return kind
    return "punctuation" if unicodedata.category(body[0]).startswith("P") else "signs"


def _kind_of_word(text: str, body: str, word: str) -> str:
    lowered = body.lower()
    begins = word.startswith(lowered) and (text[0] == " " or lowered == word or body[0].isupper())
    if not begins:
        return "word endings" if word.endswith(lowered) else "middles of words"
    if body.isupper():
        return "capital letters" if len(body) == 1 else "words in capitals"
    if body[0].isupper():
        return "capitalised words" if lowered == word else "beginnings of capitalised words"
    return "words" if lowered == word else "beginnings of words"


@cached
def _ending(text: str) -> str:
    body = text.strip()
    return body[-ENDING_LETTERS:].lower() if body.isalpha() and len(body) > ENDING_LETTERS else ""


def _insides(texts: Sequence[str]) -> list[str]:
    """Brackets or quotation marks that enclose each token, judged by the preceding text of its line."""
    result, depth, quoted = [], 0, False
    for text in texts:
        result.append("quotation marks" if quoted else "brackets" if depth else "")
        if "\n" in text:
            depth, quoted = 0, False
        for character in _enclosing(text):
            depth = max(0, depth + (character in _OPENING) - (character in _CLOSING))
            quoted = quoted != (character in _QUOTES)
    return result


@cached
def _enclosing(text: str) -> str:
    """The brackets and quotation marks of a text."""
    return "".join(character for character in text if character in _ENCLOSING)


def visible(text: str) -> str:
    return text.strip(" ").translate(_BREAKS) or "␣" * min(len(text), 4)


KINDS = (
    "spaces", "line breaks", "numbers", "opening brackets", "closing brackets", "quotation marks", "punctuation",
    "signs", "word endings", "middles of words", "capital letters", "words in capitals", "capitalised words",
    "beginnings of capitalised words", "words", "beginnings of words",
)  # fmt: skip
"""All values of the feature ``kind``."""


def _list_of(item: str) -> str:
    return f"(?:{item})(?:, (?:{item}))*(?: or (?:{item}))?"


_LANGUAGE = re.compile(f"(?P<language>{_list_of('|'.join(map(re.escape, LANGUAGES[1:])))})(?:: |$)")
_QUOTED, _KINDS = _list_of("“[^“”]*”"), _list_of("|".join(KINDS))
_START, _INSIDE = _list_of("the start of a (?:document|line|sentence)"), _list_of("quotation marks|brackets")
_LABEL = re.compile(
    rf"(?:the (?P<token>{_QUOTED}) of (?P<of>{_QUOTED})|(?P<either>{_QUOTED})(?:, (?P<part>{_KINDS}))?"
    rf"|(?P<kind>{_KINDS})(?: of (?P<word>{_QUOTED})| in (?P<ending>{_QUOTED}))?)?"
    rf"(?: ?after (?:(?P<before>{_QUOTED})(?! at the start of a document)|(?P<kind_before>{_KINDS})))*"
    rf"(?: ?at (?P<start>{_START}))?(?: ?inside (?P<inside>{_INSIDE}))?"
)
_MEANINGS = {"of": ("word",), "either": ("token", "word"), "part": ("kind",), "before": ("before", "before_two")}
"""Part of a label -> the features that it may mean, if its name is no feature."""
PRECEDING = ("before", "kind_before")
"""Parts of a label on the tokens before the one on which the expert fires."""
_VALUE = re.compile(r"“([^“”]*)”|(?:^|, | or )([^“”,]+?)(?=, | or |$)")


@lru_cache(1024)
def conditions_of(label: str) -> Mapping[str, frozenset[str]] | None:
    """Return part of a label -> its values; None if the label is not the text of a rule."""
    language = _LANGUAGE.match(label)
    rest = label[language.end() :] if language else label
    read = _LABEL.fullmatch(rest[:1].lower() + rest[1:])
    if read is None or not label:
        return None
    parts = {**(language.groupdict() if language else {}), **read.groupdict()}
    if parts["ending"] and parts["kind"] == "words":  # also of a rule without a kind
        del parts["kind"]
    return {
        name: frozenset((quoted or plain).removeprefix("-" if name == "ending" else "") for quoted, plain in values)
        for name, text in parts.items()
        if text is not None and (values := _VALUE.findall(text))
    }


def label_matches(label: str, texts: Sequence[str], position: int) -> bool | None:
    """Return whether a rule-based label holds for a token of a sequence; None if it is not the text of a rule."""
    conditions = conditions_of(label)
    if conditions is None:
        return None
    extractor = FeatureExtractor(DOCUMENT_SEPARATOR)
    ids = extractor.extract(texts)[:, position].tolist()
    values = {
        name: visible(vocabulary.texts[id])
        for (name, vocabulary), id in zip(extractor.vocabularies.items(), ids, strict=True)
    }
    return all(
        any(values[feature] in allowed for feature in _MEANINGS.get(part, (part,)))
        for part, allowed in conditions.items()
    )
