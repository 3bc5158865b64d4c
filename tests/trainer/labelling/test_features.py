"""What is said of tokens, on sentences where a person can see it."""

from __future__ import annotations

import pytest

from trainer.labelling.features import COLUMNS, Describer, kind_of

END = "<|end|>"


def said(texts: list[str], column: str) -> list[str]:
    """What a column says of each token."""
    describer = Describer(END)
    numbers = describer.columns(texts)[COLUMNS.index(column)]
    return [describer.words[column].texts[number] for number in numbers]


def test_words_go_over_several_tokens() -> None:
    assert said([" el", " pe", "que", "ño", "."], "word") == ["el", "pequeño", "pequeño", "pequeño", ""]


def test_what_stands_before() -> None:
    texts = ["according", " to", " Law", "."]
    assert said(texts, "before") == ["", "according", "to", "law"]
    assert said(texts, "before_two") == ["", "", "according to", "to law"]


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
    assert kind_of(text, word) == kind


def test_starts() -> None:
    texts = [END, "One", " fox", ".", " Two", "\n", "three"]
    assert said(texts, "start") == [
        "",
        "the start of a text",
        "",
        "",
        "the start of a sentence",
        "",
        "the start of a line",
    ]


def test_what_encloses() -> None:
    assert said(["f", "(", "a", ")", " b"], "inside") == ["", "", "brackets", "brackets", ""]


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
    assert set(said(texts, "language")) == {language}
