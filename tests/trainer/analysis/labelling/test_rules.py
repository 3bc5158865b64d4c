"""Rules: found for synthetic activity, in English, and as labels of a whole run."""

from itertools import pairwise

import numpy as np
import pytest

from mxd.trainer.analysis.labelling.features import FEATURES, FeatureExtractor, Vocabulary, token_kind
from mxd.trainer.analysis.labelling.rules import (
    ActiveTokens,
    BackgroundTokens,
    Condition,
    describe_rule,
    find_rules,
    label_experts,
    score_rule,
)
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.storage.database.expert_columns import ExpertRecord
from mxd.trainer.storage.database.tables import AutomaticLabelRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import World

WORDS = ["the", "der", "fox", "ran", ",", "red", "and"]
TOKENS = 4_000


@pytest.fixture
def text() -> list[str]:
    generator = np.random.default_rng(0)
    return [f" {word}" for word in generator.choice(WORDS, TOKENS)]


def find_label(text: list[str], active: list[int]) -> str:
    """Label of an expert that is active on the given tokens."""
    extractor = FeatureExtractor("<end>")
    features = extractor.extract(text)
    background = BackgroundTokens(features, np.arange(TOKENS))
    tokens = np.array(active)
    (best,) = find_rules(background, [ActiveTokens(tokens[:40], tokens, len(active) / TOKENS)])
    assert best is not None
    score = score_rule(best.rule, background, tokens[40:80], tokens)
    assert score.balanced_accuracy > 0.95
    assert score.precision == pytest.approx(1.0)
    return describe_rule(best.rule, extractor.vocabularies)


def test_tokens_after_tokens_are_described(text: list[str]) -> None:
    pairs = list(enumerate(pairwise(text), start=1))
    for label, active in {
        "“fox”": [index for index, (_, word) in pairs if word == " fox"],
        "“fox” after “red”": [index for index, pair in pairs if pair == (" red", " fox")],
        "After “der”": [index for index, (before, _) in pairs if before == " der"],
    }.items():
        assert find_label(text, active) == label


def test_random_activity_gives_no_good_rule(text: list[str]) -> None:
    background = BackgroundTokens(FeatureExtractor("<end>").extract(text), np.arange(TOKENS))
    tokens = np.sort(np.random.default_rng(1).choice(TOKENS, 40, replace=False))
    (best,) = find_rules(background, [ActiveTokens(tokens, tokens, 0.01)])
    assert best is None or best.objective < 0.2


def test_undefined_scores_are_none(text: list[str]) -> None:
    features = FeatureExtractor("<end>").extract(text)
    fox = int(features[0, text.index(" fox")])
    background = BackgroundTokens(features, np.flatnonzero(features[0] != fox))
    nothing = (Condition(0, (fox,)),)
    score = score_rule(nothing, background, np.flatnonzero(features[0] != fox)[:5], np.zeros(0, np.int64))
    assert score.precision is None
    assert score.recall is None
    assert score.balanced_accuracy == 0.5


def test_rules_of_several_experts_equal_those_of_each_alone(text: list[str]) -> None:
    background = BackgroundTokens(FeatureExtractor("<end>").extract(text), np.arange(TOKENS))
    generator = np.random.default_rng(2)
    words = [np.flatnonzero([word == f" {chosen}" for word in text]) for chosen in WORDS]
    noise = [np.sort(generator.choice(TOKENS, 60, replace=False)) for _ in range(5)]
    experts = [ActiveTokens(tokens[:40], tokens, len(tokens) / TOKENS) for tokens in (*words, *noise)]
    together = find_rules(background, experts)
    alone = [find_rules(background, [expert])[0] for expert in experts]
    assert [best and (best.rule, best.objective) for best in together] == [
        best and (best.rule, best.objective) for best in alone
    ]
    assert sum(best is not None for best in together) >= len(WORDS)


def test_labels_are_stored_with_scores_and_replaced(world: World, run: Run) -> None:
    world.index(run, tokens=3_000)
    result = label_experts(run, world.database)
    stored = world.rows(AutomaticLabelRecord)
    assert len(stored) == result.labelled > 0
    for label in stored:
        assert label.label
        assert label.labeller == "features"
        assert 0 <= label.balanced_accuracy <= 1
        assert all(share is None or 0 <= share <= 1 for share in (label.precision, label.recall))
    assert {label.expert for label in stored} <= {row.expert for row in world.rows(ExpertRecord) if row.active_tokens}
    assert label_experts(run, world.database).labelled == result.labelled
    assert [label.label for label in world.rows(AutomaticLabelRecord)] == [label.label for label in stored]
    world.index(run)
    assert world.rows(AutomaticLabelRecord) == []


def test_a_run_without_an_index_is_an_error_and_cancelling_changes_nothing(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd index small"):
        label_experts(run, world.database)
    world.index(run, tokens=3_000)
    with pytest.raises(CancelledError):
        label_experts(run, world.database, callbacks=Callbacks(is_cancelled=lambda: True))
    assert world.rows(AutomaticLabelRecord) == []


def describe(**features: list[str]) -> str:
    vocabularies = {name: Vocabulary() for name in FEATURES}
    rule = tuple(
        Condition(FEATURES.index(name), tuple(vocabularies[name][text] for text in texts))
        for name, texts in features.items()
    )
    return describe_rule(rule, vocabularies)


@pytest.mark.parametrize(
    ("features", "label"),
    [
        ({"before_two": ["<|endoftext|>once"]}, "After “once” at the start of a document"),
        ({"before": ["<|endoftext|>"]}, "At the start of a document"),
        ({"before": ["<|endoftext|>"], "start": ["the start of a document"]}, "At the start of a document"),
        ({"before_two": ["end<|endoftext|>", "once upon"]}, "After “once upon” or at the start of a document"),
        ({"token": ["<|endoftext|>", "."]}, "The end of a document or “.”"),
        ({"token": [" on"], "before": [","]}, "“on” after “,”"),
    ],
)
def test_a_document_separator_is_named(features: dict[str, list[str]], label: str) -> None:
    assert describe(**features) == label


END = "<|end|>"


def values(texts: list[str], feature: str) -> list[str]:
    """Values of a feature for each token."""
    extractor = FeatureExtractor(END)
    numbers = extractor.extract(texts)[FEATURES.index(feature)]
    return [extractor.vocabularies[feature].texts[number] for number in numbers]


STARTS = ["the start of a document", "", "", "the start of a sentence", "", "the start of a line"]


@pytest.mark.parametrize(
    ("feature", "texts", "expected"),
    [
        ("word", [" el", " pe", "que", "ño", "."], ["el", "pequeño", "pequeño", "pequeño", ""]),
        ("before", ["according", " to", " Law", "."], ["", "according", "to", "law"]),
        ("before_two", ["according", " to", " Law", "."], ["", "", "according to", "to law"]),
        ("start", [END, "One", " fox", ".", " Two", "\n", "three"], ["", *STARTS]),
        ("inside", ["f", "(", "a", ")", " b"], ["", "", "brackets", "brackets", ""]),
    ],
)
def test_features_of_tokens(feature: str, texts: list[str], expected: list[str]) -> None:
    assert values(texts, feature) == expected


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
