"""Texts of tokens, and lookup of tokens by text."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mxd.backend.inference.run_loader import Vocabulary
from mxd.trainer.language_model.tokenizer import token_texts
from tests.helpers.formats.tiny_tokenizers import byte_fallback, metaspace
from tests.helpers.language_models import END, byte_tokenizer

TOKENIZER = byte_tokenizer()
VOCABULARY = Vocabulary(TOKENIZER)


@given(st.lists(st.integers(0, len(TOKENIZER) + 1), max_size=30))
def test_texts_equal_decoding_token_by_token(ids: list[int]) -> None:
    assert list(VOCABULARY.texts(ids)) == token_texts(TOKENIZER, ids)


def test_parts_of_characters_have_a_name() -> None:
    vocabulary = Vocabulary(byte_tokenizer())
    first, second = byte_tokenizer()("é")["input_ids"]
    assert vocabulary.texts([first, second]) == ("", "é")
    assert (vocabulary.name(first), vocabulary.name(second)) == ("<0xC3>", "<0xA9>")
    assert vocabulary.name(0) == END


@pytest.mark.parametrize("build", [byte_fallback, metaspace])
def test_names_keep_leading_spaces(
    build: Callable[[], PreTrainedTokenizerFast],
) -> None:
    tokenizer = build()
    vocabulary, ids = Vocabulary(tokenizer), tokenizer.get_vocab()
    for piece in ("▁a", "a", "▁"):
        assert vocabulary.name(ids[piece]) == piece.replace("▁", " ")
    assert set(vocabulary.exact_matches("a")) >= {ids["▁a"], ids["a"]}


def test_a_byte_of_a_sentencepiece_tokenizer_keeps_its_name() -> None:
    tokenizer = byte_fallback()
    assert Vocabulary(tokenizer).name(tokenizer.get_vocab()["<0xC3>"]) == "<0xC3>"


def test_prefix_matches_from_three_letters_on() -> None:
    vocabulary = Vocabulary(byte_tokenizer())
    upper, lower = (byte_tokenizer()(letter)["input_ids"][0] for letter in "Aa")
    assert set(vocabulary.prefix_matches("a")) == {upper, lower}
    assert vocabulary.prefix_matches("<|end") == [0]
    assert vocabulary.prefix_matches("<|") == []
    assert vocabulary.prefix_matches("  ") == []


def test_exact_matches() -> None:
    upper, lower = (TOKENIZER(letter)["input_ids"][0] for letter in "Aa")
    assert set(VOCABULARY.exact_matches("␣a")) == {upper, lower}
    assert VOCABULARY.exact_matches("<|end") == []
    assert VOCABULARY.exact_matches(END.upper()) == [0]
