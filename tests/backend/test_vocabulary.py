"""Words of a tokenizer as they stand on screen and as they are searched for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backend.vocabulary import Vocabulary, fold
from tests.language_models import END, byte_tokenizer
from trainer.tokens import token_texts

TOKENIZER = byte_tokenizer()
VOCABULARY = Vocabulary(TOKENIZER)


@given(st.lists(st.integers(0, len(TOKENIZER) + 1), max_size=30))
def test_texts_are_those_of_decoding_one_after_the_other(ids: list[int]) -> None:
    assert list(VOCABULARY.texts(ids)) == token_texts(TOKENIZER, ids)


@given(st.text(max_size=30))
def test_texts_of_a_text_make_it_up(text: str) -> None:
    assert "".join(VOCABULARY.texts(TOKENIZER(text)["input_ids"])) == text


def test_tokens_by_themselves_have_a_name_even_in_parts() -> None:
    vocabulary = Vocabulary(byte_tokenizer())
    first, second = byte_tokenizer()("é")["input_ids"]
    assert vocabulary.texts([first, second]) == ("", "é")
    assert vocabulary.name(first) == byte_tokenizer().convert_ids_to_tokens(first)
    assert vocabulary.name(0) == END


def test_short_words_match_whole_tokens_and_longer_ones_their_beginning() -> None:
    vocabulary = Vocabulary(byte_tokenizer())
    upper, lower = (byte_tokenizer()(letter)["input_ids"][0] for letter in "Aa")
    assert set(vocabulary.matching("a")) == {upper, lower}
    assert vocabulary.matching("<|end") == [0]
    assert vocabulary.matching("<|") == []
    assert vocabulary.matching("  ") == []


def test_equal_ones_are_whole_tokens_only() -> None:
    upper, lower = (TOKENIZER(letter)["input_ids"][0] for letter in "Aa")
    assert set(VOCABULARY.equal("␣a")) == {upper, lower}
    assert VOCABULARY.equal("<|end") == []
    assert VOCABULARY.equal(END.upper()) == [0]


def test_spaces_and_case_do_not_matter() -> None:
    assert fold(" May ") == fold("␣may") == "may"
