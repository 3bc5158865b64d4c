"""Contrasts on a tiny language model: counts equal the routing, other words are found, shuffled texts are not."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mxd.trainer.analysis.contrast import ContrastMeasurement, NamedText, contrast, text_of_file, text_of_kind
from mxd.trainer.analysis.results import Contrast
from mxd.trainer.config import ContrastConfig, TextConfig
from mxd.trainer.errors import CancelledError, UserError
from mxd.trainer.inference.routing import route
from mxd.trainer.utils.callbacks import Callbacks
from tests.helpers.runs import World, run_of, small_world

FEW = ContrastConfig(min_tokens=5, min_units=2, shown=100)
WORDS = (("red", "fox", "ran", "the"), ("blue", "dog", "sat", "very"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A tiny language model with a text."""
    return small_world(tmp_path)


def random_texts(words: tuple[str, ...], seed: int, documents: int = 40) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(words, size=generator.integers(2, 9))) for _ in range(documents)]


def compare(world: World, a: list[str], b: list[str], config: ContrastConfig = FEW) -> Contrast:
    return contrast(run_of(world, "run", 1), NamedText("A", a), NamedText("B", b), config, world.language_model)


def test_counts_equal_the_routing_of_each_document(world: World) -> None:
    a, b = ([text[:12] for text in random_texts(words, seed)] for seed, words in enumerate(WORDS))
    result = compare(world, a, b)
    run = run_of(world, "run", 1)
    for texts, side in ((a, "a"), (b, "b")):
        active, documents, tokens = Counter[int](), Counter[int](), 0
        for text in texts:
            routed = [token for token in route(world.language_model, run, text).tokens if not token.start]
            experts = [expert.expert for token in routed for expert in token.experts]
            active.update(experts)
            documents.update(set(experts))
            tokens += len(routed)
        assert getattr(result, side).tokens == tokens
        assert getattr(result, side).documents == len(texts)
        for each in result.experts:
            assert getattr(each, f"active_{side}") == active[each.expert]
            assert getattr(each, f"units_{side}") == documents[each.expert]
            assert getattr(each, f"density_{side}") == pytest.approx(active[each.expert] / tokens)


def test_other_words_are_found_and_shuffled_documents_are_not(world: World) -> None:
    a, b = (random_texts(words, seed) for seed, words in enumerate(WORDS))
    result = compare(world, a, b)
    assert result.unit == "document"
    assert result.found_a and result.found_b
    assert result.chance is not None and result.chance.mean_found < 0.5
    assert result.chance.covered > 0.9
    mixed = [*a, *b]
    order = np.random.default_rng(0).permutation(len(mixed))
    halves = [[mixed[index] for index in part] for part in np.array_split(order, 2)]
    shuffled = compare(world, halves[0], halves[1])
    assert shuffled.found_a + shuffled.found_b <= 1


def test_examples_show_the_strongest_tokens_of_both_texts(world: World) -> None:
    a, b = (random_texts(words, seed) for seed, words in enumerate(WORDS))
    result = compare(world, a, b)
    assert set(result.examples) == {each.expert for each in result.experts if each.is_found}
    for both in result.examples.values():
        assert both.a or both.b
        for examples in (both.a, both.b):
            assert len(examples) <= FEW.examples
            strengths = [example.activation for example in examples]
            assert strengths == sorted(strengths, reverse=True)
            for example in examples:
                assert max(value for _, value, _ in example.active) == pytest.approx(example.activation)
                assert example.position in {place for place, _, _ in example.active}
                assert max(place for place, _, _ in example.active) < len(example.token_ids)


def test_steps_of_any_size_give_one_result(world: World) -> None:
    a, b = (NamedText(name, random_texts(words, 3)) for name, words in zip("AB", WORDS, strict=True))
    run = run_of(world, "run", 1)
    results = []
    for sequences in (1, 7, 100):
        measurement = ContrastMeasurement(run, a, b, FEW, world.language_model)
        while not measurement.is_done:
            measurement.step(sequences)
        assert measurement.tokens_done == measurement.tokens
        results.append(measurement.result())
    assert [(each.expert, each.active_a, each.active_b) for each in results[0].experts] == [
        (each.expert, each.active_a, each.active_b) for each in results[1].experts
    ]
    assert results[1].found_a == results[2].found_a


def test_few_documents_are_compared_by_sequence(world: World) -> None:
    long = [" ".join(random_texts(words, 5)) for words in WORDS]
    result = compare(world, long[:1], long[1:])
    assert result.unit == "sequence"
    assert result.a.documents == 1 and result.a.units > 10
    with pytest.raises(UserError, match="Text A is too short"):
        compare(world, ["red"], long)


def test_unusable_texts_are_one_clear_error(world: World, tmp_path: Path) -> None:
    texts = [random_texts(words, 5) for words in WORDS]
    with pytest.raises(UserError, match="Text B is empty"):
        compare(world, texts[0], [""])
    with pytest.raises(UserError, match="No expert is active on 9999 tokens"):
        compare(world, texts[0], texts[1], ContrastConfig(min_tokens=9999))
    path = tmp_path / "kinds.jsonl"
    path.write_text("".join(f'{{"kind": "{kind}", "text": "{kind} fox"}}\n' for kind in ("red", "blue") * 3))
    text = TextConfig(dataset=str(path))
    assert text_of_kind(text, "red", "kind", 0).documents == ["red fox"] * 3
    assert len(list(text_of_file(text, 0).documents)) == 6
    with pytest.raises(UserError, match=r"No text of kind 'reed'.* Did you mean 'red'"):
        text_of_kind(text, "reed", "kind", 0)


def test_a_contrast_can_be_cancelled(world: World) -> None:
    a, b = (NamedText(name, random_texts(words, 3)) for name, words in zip("AB", WORDS, strict=True))
    with pytest.raises(CancelledError):
        contrast(run_of(world, "run", 1), a, b, FEW, world.language_model, Callbacks(is_cancelled=lambda: True))
