"""Words that a language model relates to a description."""

from collections.abc import Sequence

import pytest
import torch

from mxd.trainer.language_model import related_words
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.language_model.related_words import RelatedWords
from tests.helpers.runs import World

DEMO = "tests/demo/language-model"


def test_words_expected_after_any_description_are_not_related(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """“e” follows everything; “m” follows one description only."""
    tokens = world.language_model.tokenizer("em", add_special_tokens=False)["input_ids"]

    def expected(related: RelatedWords, texts: Sequence[str], start_token: str | None) -> torch.Tensor:
        probability = torch.full((len(texts), world.language_model.architecture.vocabulary_size), 1e-6)
        probability[:, tokens[0]] = 0.5
        if list(texts) == ["medicine"]:
            probability[:, tokens[1]] = 0.1
        return probability

    monkeypatch.setattr(related_words, "MIN_LETTERS", 1)
    monkeypatch.setattr(RelatedWords, "_after_descriptions", expected)
    assert RelatedWords(world.language_model).of("medicine", None) == {"m": 1.0}


def test_descriptions_of_several_lengths_are_computed_together(world: World) -> None:
    related = RelatedWords(world.language_model)
    together = related._after_descriptions(["a", "days of the week"], None)
    alone = [related._after_descriptions([text], None) for text in ("a", "days of the week")]
    assert torch.allclose(together, torch.cat(alone), atol=1e-5)


def test_a_word_without_tokens_is_related_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    related = RelatedWords(LanguageModel.load(DEMO))
    assert related._similar_to(["fast"])["fast"] == pytest.approx(1.0, abs=1e-4)
    monkeypatch.setattr(related._language_model, "tokenizer", lambda *_, **__: {"input_ids": []})
    assert related._similar_to(["zzqq"]) == {}


def test_similar_embeddings_relate_words_and_reject_beginnings_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    language_model = LanguageModel.load(DEMO)
    token = {word: language_model.tokenizer(f" {word}")["input_ids"][-1] for word in ("fast", "discover", "prote")}
    embedding_VD = language_model.module.get_input_embeddings().weight
    generator = torch.Generator().manual_seed(0)
    noise_VD = torch.randn(embedding_VD.shape, generator=generator)
    embedding_VD.copy_(noise_VD + 20)  # all are similar, until what is common to them is removed
    embedding_VD[token["discover"]] = embedding_VD[token["fast"]] + 0.5 * noise_VD[0]
    monkeypatch.setattr(RelatedWords, "_expected_after", lambda *_: {"prote": 4.0, "unknown": 1.0, "fast": 0.25})
    related = RelatedWords(language_model).of("the fast", None)
    assert list(related) == ["fast", "unknown", "discover"]
    # "fast" itself is as similar as can be, and what is expected counts by the square root of its relation.
    assert related["fast"] == pytest.approx(1.0, abs=1e-4) and related["unknown"] == 1.0
    assert related["discover"] == pytest.approx(1 / 1.25**0.5, abs=0.05)


def test_a_description_is_computed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    related, asked = RelatedWords(world.language_model), list[str]()
    compute = related._after_descriptions

    def counted(texts: Sequence[str], start_token: str | None) -> torch.Tensor:
        asked.extend(texts)
        return compute(texts, start_token)

    monkeypatch.setattr(related, "_after_descriptions", counted)
    first = related.of("the fox", None)
    first["changed"] = 1.0
    assert "changed" not in related.of("the fox", None)
    assert asked.count("the fox") == 1
