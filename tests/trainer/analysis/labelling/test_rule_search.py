"""Rules for synthetic activity on random text."""

from __future__ import annotations

import numpy as np
import pytest

from mxd.trainer.analysis.labelling.features import FEATURES, FeatureExtractor
from mxd.trainer.analysis.labelling.rules import (
    ActiveTokens,
    BackgroundTokens,
    Condition,
    describe_rule,
    find_rules,
    matches,
    score_rule,
)

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


def test_a_token(text: list[str]) -> None:
    label = find_label(text, [index for index, word in enumerate(text) if word == " fox"])
    assert label == "“fox”"


def test_a_token_after_another(text: list[str]) -> None:
    active = [index for index in range(1, TOKENS) if text[index] == " fox" and text[index - 1] == " red"]
    label = find_label(text, active)
    assert label == "“fox” after “red”"


def test_tokens_after_a_token(text: list[str]) -> None:
    label = find_label(text, [index for index in range(1, TOKENS) if text[index - 1] == " der"])
    assert label == "After “der”"


def test_random_activity_gives_no_good_rule(text: list[str]) -> None:
    background = BackgroundTokens(FeatureExtractor("<end>").extract(text), np.arange(TOKENS))
    tokens = np.sort(np.random.default_rng(1).choice(TOKENS, 40, replace=False))
    (best,) = find_rules(background, [ActiveTokens(tokens, tokens, 0.01)])
    assert best is None or best.objective < 0.2


def test_matching_equals_the_mask(text: list[str]) -> None:
    background = BackgroundTokens(FeatureExtractor("<end>").extract(text), np.arange(TOKENS))
    token = background.features_FT[FEATURES.index("token")]
    rule = (
        Condition(FEATURES.index("token"), (int(token[3]), int(token[5]))),
        Condition(FEATURES.index("before"), (int(background.features_FT[FEATURES.index("before"), 3]),)),
    )
    expected = np.flatnonzero(matches(background.features_FT, rule, np.arange(TOKENS)))
    assert sorted(background.matching(rule).tolist()) == expected.tolist()
    assert 3 in expected


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
