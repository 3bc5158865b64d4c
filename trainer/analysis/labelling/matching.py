"""Test of whether a rule-based label holds for a token: its text is read back as conditions on features.

The database stores the text of a label, not its rule. Quoted text may be a token or a word, so a match is what a reader
of the label would count as one.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from mxd.trainer.analysis.labelling.features import LANGUAGES, FeatureExtractor, visible
from mxd.trainer.language_model.tokenizer import DOCUMENT_SEPARATOR

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
_FEATURES = {
    "of": ("word",),
    "either": ("token", "word"),
    "part": ("kind",),
    "before": ("before", "before_two"),
}
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
        any(values[feature] in allowed for feature in _FEATURES.get(part, (part,)))
        for part, allowed in conditions.items()
    )
