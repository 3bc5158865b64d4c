"""Rules found on text whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from trainer.labelling.features import COLUMNS, Describer
from trainer.labelling.label import score_of
from trainer.labelling.rules import Background, Condition, Search, fits
from trainer.labelling.words import in_words

WORDS = ["the", "der", "fox", "ran", ",", "red", "and"]
TOKENS = 4_000


@pytest.fixture
def text() -> list[str]:
    generator = np.random.default_rng(0)
    return [f" {word}" for word in generator.choice(WORDS, TOKENS)]


def found(text: list[str], active: list[int]) -> tuple[str, Describer, Background, np.ndarray]:
    """The label for tokens on which an expert is active."""
    describer = Describer("<end>")
    columns = describer.columns(text)
    background = Background(columns, np.arange(TOKENS))
    places = np.array(active)
    best = Search(background, places[:40], places, len(active) / TOKENS).best()
    assert best is not None
    score = score_of(best.rule, background, places[40:80], places)
    assert score.balanced_accuracy > 0.95
    assert score.precision == pytest.approx(1.0)
    return in_words(best.rule, describer.words), describer, background, places


def test_a_token(text: list[str]) -> None:
    label, *_ = found(text, [place for place, word in enumerate(text) if word == " fox"])
    assert label == "“fox”"


def test_a_token_after_another(text: list[str]) -> None:
    active = [place for place in range(1, TOKENS) if text[place] == " fox" and text[place - 1] == " red"]
    label, *_ = found(text, active)
    assert label == "“fox” after “red”"


def test_what_follows_a_token(text: list[str]) -> None:
    label, *_ = found(text, [place for place in range(1, TOKENS) if text[place - 1] == " der"])
    assert label == "After “der”"


def test_chance_gives_no_rule_worth_saying(text: list[str]) -> None:
    background = Background(Describer("<end>").columns(text), np.arange(TOKENS))
    places = np.sort(np.random.default_rng(1).choice(TOKENS, 40, replace=False))
    best = Search(background, places, places, 0.01).best()
    assert best is None or best.objective < 0.2


def test_matching_is_what_fits(text: list[str]) -> None:
    background = Background(Describer("<end>").columns(text), np.arange(TOKENS))
    token = background.columns_CT[COLUMNS.index("token")]
    rule = (
        Condition(COLUMNS.index("token"), (int(token[3]), int(token[5]))),
        Condition(COLUMNS.index("before"), (int(background.columns_CT[COLUMNS.index("before"), 3]),)),
    )
    expected = np.flatnonzero(fits(background.columns_CT, rule, np.arange(TOKENS)))
    assert sorted(background.matching(rule).tolist()) == expected.tolist()
    assert 3 in expected


def test_a_score_that_cannot_be_measured_is_none(text: list[str]) -> None:
    background = Background(Describer("<end>").columns(text), np.arange(TOKENS))
    nothing = (Condition(0, (10_000,)),)
    score = score_of(nothing, background, np.arange(5), np.zeros(0, np.int64))
    assert score.precision is None
    assert score.recall is None
    assert score.balanced_accuracy == 0.5
