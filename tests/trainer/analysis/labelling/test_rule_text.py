"""Rules in English."""

from __future__ import annotations

import pytest

from mxd.trainer.analysis.labelling.features import FEATURES, Vocabulary
from mxd.trainer.analysis.labelling.rules import Condition, describe_rule


def describe(**features: list[str]) -> str:
    vocabularies = {name: Vocabulary() for name in FEATURES}
    rule = tuple(
        Condition(FEATURES.index(name), tuple(vocabularies[name].get_id(text) for text in texts))
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
