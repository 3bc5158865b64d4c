"""Passages: reading, tokenising, variations, overlaps with the retain set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.prompts import prompt_ids
from mxd.trainer.training.privacy.passages import (
    OVERLAP_TOKENS,
    Passage,
    drop_overlapping,
    encode,
    read_passages,
    variations_of,
)
from tests.helpers.language_models import tiny_language_model

FOX = "the red fox ran and the old dog sat very very still and sang"


def test_read_passages_from_txt_and_jsonl(tmp_path: Path) -> None:
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
        ("a.jsonl", b'{"text": ""}', "is not a passage"),
        ("a.jsonl", b'{"text": "a", "paraphrases": [1]}', "is not a passage"),
        ("a.jsonl", b'{"text": "a", "paraphrases": "b"}', "is not a passage"),
        ("a.jsonl", b'{"text": "a", "other": 1}', "is not a passage"),
        ("a.jsonl", b'["a"]', "is not a passage"),
        ("a.jsonl", b"[" * 100_000, "is not a passage"),
    ],
)
def test_invalid_passage_files(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_passages(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="There is no file"):
        read_passages(tmp_path / "nowhere.txt")


def test_scored_predictions() -> None:
    language_model = tiny_language_model()
    texts = [FOX, "the dog sang and sang"]
    encoded = encode(language_model, texts, skip_tokens=2)
    for row, is_scored_T, text in zip(encoded.ids_ST, encoded.is_scored_ST, texts, strict=True):
        ids = prompt_ids(language_model, text)
        assert row[: len(ids)].tolist() == ids
        assert is_scored_T.nonzero().flatten().tolist() == list(range(2, len(ids) - 1))
    assert encoded.predictions == int(encoded.is_scored_ST.sum())
    with pytest.raises(UserError, match="Make it longer"):
        encode(language_model, ["red"], skip_tokens=200)


def test_variations_of_passages() -> None:
    variations = variations_of([Passage("The Fox ran over the hill", ("A fox crossed it",)), Passage("1 2 3")])
    assert variations == {
        "given": ["A fox crossed it"],
        "later beginning": ["ran over the hill", "2 3"],
        "swapped case": ["tHE fOX RAN OVER THE HILL"],
    }
    assert variations_of([Passage("x")]) == {"swapped case": ["X"]}


@given(st.integers(0, 30), st.booleans())
def test_overlapping_sequences_are_dropped(place: int, long_enough: bool) -> None:
    language_model = tiny_language_model()
    passages = encode(language_model, [FOX], skip_tokens=0)
    ids = prompt_ids(language_model, FOX)[1:]
    part = ids[2 : 2 + OVERLAP_TOKENS - (0 if long_enough else 1)]
    other = torch.full((2, 40), ids[0])
    other[1, place : place + len(part)] = torch.tensor(part)
    assert len(drop_overlapping(other, passages)) == (1 if long_enough else 2)
