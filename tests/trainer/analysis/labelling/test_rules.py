"""Rules: found for synthetic activity, in English, and as labels of a whole run."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.trainer.analysis.indexing.build import build_index
from mxd.trainer.analysis.labelling.features import FEATURES, FeatureExtractor, Vocabulary
from mxd.trainer.analysis.labelling.rules import (
    ActiveTokens,
    BackgroundTokens,
    Condition,
    describe_rule,
    find_rules,
    label_experts,
    matches,
    score_rule,
)
from mxd.trainer.config import IndexConfig
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


def labels(world: World) -> list[AutomaticLabelRecord]:
    with Session(world.database) as session:
        return list(session.scalars(select(AutomaticLabelRecord).order_by(AutomaticLabelRecord.expert)))


def test_labels_are_stored_with_scores_and_replaced(world: World, run: Run) -> None:
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.database)
    result = label_experts(run, world.database)
    stored = labels(world)
    assert len(stored) == result.labelled > 0
    for label in stored:
        assert label.label
        assert label.labeller == "features"
        assert 0 <= label.balanced_accuracy <= 1
        assert all(share is None or 0 <= share <= 1 for share in (label.precision, label.recall))
    with Session(world.database) as session:
        active = set(session.scalars(select(ExpertRecord.expert).where(ExpertRecord.active_tokens > 0)))
    assert {label.expert for label in stored} <= active
    assert label_experts(run, world.database).labelled == result.labelled
    assert [label.label for label in labels(world)] == [label.label for label in stored]
    build_index(run, IndexConfig(text=world.text, tokens=640), world.language_model, world.database)
    assert labels(world) == []


def test_a_run_without_an_index_is_an_error(world: World, run: Run) -> None:
    with pytest.raises(UserError, match="mxd index small"):
        label_experts(run, world.database)


def test_cancelling_changes_nothing(world: World, run: Run) -> None:
    build_index(run, IndexConfig(text=world.text, tokens=3_000), world.language_model, world.database)
    with pytest.raises(CancelledError):
        label_experts(run, world.database, callbacks=Callbacks(is_cancelled=lambda: True))
    assert labels(world) == []


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
