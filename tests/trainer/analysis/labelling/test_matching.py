"""Labels read back as conditions: they hold where the rule does that they describe."""

from __future__ import annotations

import random

import numpy as np
import pytest

from mxd.trainer.analysis.labelling.features import FEATURES, FeatureExtractor
from mxd.trainer.analysis.labelling.matching import label_matches
from mxd.trainer.analysis.labelling.rules import Condition, describe_rule, matches

TEXTS = [
    text
    for sentence in (
        " On| Monday|,| he| was| late| at| last|.| (|The| end|)|\n",
        "def| run|ning|(|self|):|\n|    |return| 12|3|\n",
        " Der| Hund| und| die| Katze| sind| nicht| hier|.| JSON| A| “|yes|”| -| a|t| one| time|.",
    )
    for text in sentence.split("|")
]


@pytest.mark.parametrize(
    ("label", "word", "expected"),
    [
        ("“Monday”", " Monday", True),
        ("“Monday”", " last", False),
        ("“last” after “at”", " last", True),
        ("After “at” or “the”", " last", True),
        ("After “at” or “the”", " late", False),
        ("Words in “-day” or “-ing”", " Monday", True),
        ("Capitalised words in “-day” or “-ing”", " Monday", True),
        ("Numbers inside brackets", " 12", False),
        ("“end” inside brackets", " end", True),
        ("An explanation of a language model", " Monday", None),
        ("“x” after “” at the start of a document", " Monday", None),
    ],
)
def test_a_label_holds_where_it_says(label: str, word: str, expected: bool | None) -> None:
    assert label_matches(label, TEXTS, TEXTS.index(word)) is expected


def test_a_label_holds_where_its_rule_does() -> None:
    extractor, draw = FeatureExtractor("<|endoftext|>"), random.Random(0)
    features = extractor.extract(TEXTS)
    everywhere, read, equal = np.arange(len(TEXTS)), 0, 0
    for _ in range(400):
        token = draw.randrange(len(TEXTS))
        chosen = draw.sample([f for f in range(len(FEATURES)) if features[f, token]], draw.choice((1, 1, 2)))
        rule = tuple(Condition(f, (int(features[f, token]),)) for f in sorted(chosen))
        label = describe_rule(rule, extractor.vocabularies)
        held = [label_matches(label, TEXTS, position) for position in everywhere.tolist()]
        if None in held:
            continue
        read += 1
        matched = matches(features, rule, everywhere)
        assert not any(matched & ~np.array(held, bool)), label  # a label may say less than its rule
        equal += bool((matched == np.array(held)).all())
    assert read > 300
    assert equal > 0.7 * read
