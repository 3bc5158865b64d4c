"""Passages from files, as tokens, in other words; and other text without them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.language_models import tiny_language_model
from trainer.errors import NotFoundError, UserError
from trainer.privacy.passages import RUN_OF_TOKENS, Passage, encode, read_passages, said_otherwise, without
from trainer.routing import prompt_ids

FOX = "the red fox ran and the old dog sat very very still and sang"


def test_paragraphs_and_objects_are_read(tmp_path: Path) -> None:
    text, objects = tmp_path / "passages.txt", tmp_path / "passages.jsonl"
    text.write_text(f"\n{FOX}\nand on\n \n\n\nthe dog sang\n\nthe dog sang\n")
    assert read_passages(text) == [Passage(f"{FOX}\nand on"), Passage("the dog sang")]
    objects.write_text(json.dumps({"text": FOX}) + "\n\n" + json.dumps({"text": "a", "paraphrases": ["b", "c"]}))
    assert read_passages(objects) == [Passage(FOX), Passage("a", ("b", "c"))]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"", "holds no passages"),
        ("a.txt", b" \n\n \n", "holds no passages"),
        ("a.jsonl", b"", "holds no passages"),
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.csv", b"text", "is neither .txt nor .jsonl"),
        ("a.jsonl", b'{"text": "a"}\nnothing', "Line 2 of"),
        ("a.jsonl", b'{"text": ""}', "is no passage"),
        ("a.jsonl", b'{"text": "a", "paraphrases": [1]}', "is no passage"),
        ("a.jsonl", b'{"text": "a", "paraphrases": "b"}', "is no passage"),
        ("a.jsonl", b'{"text": "a", "other": 1}', "is no passage"),
        ("a.jsonl", b'["a"]', "is no passage"),
        ("a.jsonl", b"[" * 100_000, "is no passage"),
    ],
)
def test_what_is_no_file_of_passages_is_refused(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_passages(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no file"):
        read_passages(tmp_path / "nowhere.txt")


def test_predictions_count_behind_enough_tokens_where_there_is_a_next_one() -> None:
    language_model = tiny_language_model()
    texts = [FOX, "the dog sang and sang"]
    encoded = encode(language_model, texts, after=2)
    for row, is_meant_T, text in zip(encoded.ids_ST, encoded.is_meant_ST, texts, strict=True):
        ids = prompt_ids(language_model, text)
        assert row[: len(ids)].tolist() == ids
        assert is_meant_T.nonzero().flatten().tolist() == list(range(2, len(ids) - 1))
    assert encoded.predictions == int(encoded.is_meant_ST.sum())
    with pytest.raises(UserError, match="make it longer"):
        encode(language_model, ["red"], after=200)


def test_other_words_are_those_given_and_two_that_are_made() -> None:
    found = said_otherwise([Passage("The Fox ran over the hill", ("A fox crossed it",)), Passage("1 2 3")])
    assert found == {
        "given": ["A fox crossed it"],
        "later beginning": ["ran over the hill", "2 3"],
        "swapped case": ["tHE fOX RAN OVER THE HILL"],
    }
    assert said_otherwise([Passage("x")]) == {"swapped case": ["X"]}


@given(st.integers(0, 30), st.booleans())
def test_text_that_holds_a_passage_is_left_out(place: int, long_enough: bool) -> None:
    language_model = tiny_language_model()
    passages = encode(language_model, [FOX], after=0)
    ids = prompt_ids(language_model, FOX)[1:]
    part = ids[2 : 2 + RUN_OF_TOKENS - (0 if long_enough else 1)]
    other = torch.full((2, 40), ids[0])
    other[1, place : place + len(part)] = torch.tensor(part)
    assert len(without(other, passages)) == (1 if long_enough else 2)
