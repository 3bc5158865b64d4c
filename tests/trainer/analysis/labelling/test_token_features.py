"""Token features of sentences with obvious answers."""

from __future__ import annotations

import pytest

from mxd.trainer.analysis.labelling.features import FEATURES, FeatureExtractor, token_kind

END = "<|end|>"


def values(texts: list[str], feature: str) -> list[str]:
    """Values of a feature for each token."""
    extractor = FeatureExtractor(END)
    numbers = extractor.extract(texts)[FEATURES.index(feature)]
    return [extractor.vocabularies[feature].texts[number] for number in numbers]


def test_words_span_several_tokens() -> None:
    assert values([" el", " pe", "que", "ño", "."], "word") == ["el", "pequeño", "pequeño", "pequeño", ""]


def test_preceding_tokens() -> None:
    texts = ["according", " to", " Law", "."]
    assert values(texts, "before") == ["", "according", "to", "law"]
    assert values(texts, "before_two") == ["", "", "according to", "to law"]


@pytest.mark.parametrize(
    ("text", "word", "kind"),
    [
        (" 42", "42", "numbers"),
        ("\n\n", "", "line breaks"),
        ("   ", "", "spaces"),
        ("(", "", "opening brackets"),
        ("“", "", "quotation marks"),
        (",", "", "punctuation"),
        ("+", "", "signs"),
        (" The", "the", "capitalised words"),
        (" the", "the", "words"),
        (" pe", "pequeño", "beginnings of words"),
        ("que", "pequeño", "middles of words"),
        ("ño", "pequeño", "word endings"),
        (" A", "a", "capital letters"),
    ],
)
def test_kinds_of_tokens(text: str, word: str, kind: str) -> None:
    assert token_kind(text, word) == kind


def test_starts() -> None:
    texts = [END, "One", " fox", ".", " Two", "\n", "three"]
    assert values(texts, "start") == [
        "",
        "the start of a document",
        "",
        "",
        "the start of a sentence",
        "",
        "the start of a line",
    ]


def test_enclosing_brackets() -> None:
    assert values(["f", "(", "a", ")", " b"], "inside") == ["", "", "brackets", "brackets", ""]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("the cat and the dog were not there", "English"),
        ("der Hund und die Katze sind nicht da", "German"),
        ("le chat et le chien ne sont pas dans la maison", "French"),
        ("def f ( self ) : return None", "Python code"),
        ("42 17 39", ""),
    ],
)
def test_languages(text: str, language: str) -> None:
    texts = [f" {word}" for word in text.split()]
    assert set(values(texts, "language")) == {language}
