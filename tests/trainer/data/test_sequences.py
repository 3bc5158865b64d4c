"""Sequences: packing, counts, skipping, repetition, errors."""

import json
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from mxd.trainer.config import TextConfig
from mxd.trainer.data import sequences as module
from mxd.trainer.data.documents import Order, documents
from mxd.trainer.data.readers import Document, only_texts
from mxd.trainer.data.sequences import TextProgress, check_text_length, sequences, tokenize_documents
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.language_model.tokenizer import after_start, prompt_ids, start_token_id
from tests.helpers.formats.tiny_tokenizers import LINES, byte_fallback, byte_level, metaspace
from tests.helpers.language_models import END, tiny_language_model

TOKENIZER = byte_level()
CONTEXT = 8


def write(path: Path, rows: list[str]) -> TextConfig:
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return TextConfig(dataset=str(path), context_length=CONTEXT)


def token_ids(tokenizer: PreTrainedTokenizerFast, rows: Iterable[Document]) -> list[int]:
    """Token ids of some documents, by a reference implementation."""
    separator = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.bos_token_id
    ids: list[int] = []
    for row in only_texts(rows, "The list"):
        ids += [separator, *tokenizer.backend_tokenizer.encode(row, add_special_tokens=False).ids]
    return ids


def collected(config: TextConfig, tokens: int, seed: int = 0, order: Order = "as-is", skip: int = 0) -> list[list[int]]:
    return [row.tolist() for row in sequences(config, TOKENIZER, tokens, seed, order, skip)]


@pytest.fixture
def config(tmp_path: Path) -> TextConfig:
    return write(tmp_path / "rows.jsonl", [f"{number} {line}" for number in range(40) for line in LINES])


@pytest.mark.parametrize("tokenizer", [TOKENIZER, byte_fallback()], ids=["end of text", "beginning of text"])
def test_the_start_token_precedes_each_document(config: TextConfig, tokenizer: PreTrainedTokenizerFast) -> None:
    expected = token_ids(tokenizer, documents(config))
    tokens = len(expected) // CONTEXT * CONTEXT
    rows = list(sequences(config, tokenizer, tokens, 0, "as-is"))
    assert np.concatenate(rows).tolist() == expected[:tokens]
    assert all(row.shape == (CONTEXT,) and row.dtype == np.int32 for row in rows)


def test_texts_that_begin_with_the_start_token_get_no_second_one(tmp_path: Path) -> None:
    language_model = tiny_language_model()
    tokenizer = language_model.tokenizer
    start = start_token_id(tokenizer)
    assert after_start(start, []) == [start]
    assert prompt_ids(language_model, f"{END}ab") == prompt_ids(language_model, "ab")
    # Another one inside the text stays.
    assert prompt_ids(language_model, f"ab{END}cd").count(start) == 2
    plain, rendered = (write(tmp_path / f"{name}.jsonl", [f"{name}{line}" for line in LINES]) for name in ("", END))
    wanted = np.concatenate(list(tokenize_documents(plain, tokenizer)))
    assert np.array_equal(np.concatenate(list(tokenize_documents(rendered, tokenizer))), wanted)


@pytest.mark.parametrize("order", get_args(Order))
def test_skip_drops_the_first_sequences(config: TextConfig, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 3)
    whole = collected(config, 1000, seed=3, order=order)
    for skip in (0, 1, 7, len(whole) - 1, len(whole), len(whole) + 5):
        assert collected(config, 1000, seed=3, order=order, skip=skip) == whole[skip:]


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_text_continues_from_a_position_without_tokenising_what_comes_before(
    config: TextConfig, batch: int, repeat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenised: list[str] = []
    encode = module._token_ids
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", batch)

    def encode_and_note(texts: list[str], tokenizer: PreTrainedTokenizerFast) -> list[list[int]]:
        tokenised.extend(texts)
        return encode(texts, tokenizer)

    monkeypatch.setattr(module, "_token_ids", encode_and_note)
    tokens = len(token_ids(TOKENIZER, documents(config)))
    if repeat:
        config, tokens = config.model_copy(update={"on_short_text": "repeat"}), 3 * tokens
    whole, first = collected(config, tokens, order="shuffled"), tokenised.copy()
    for done in (0, 1, 40, len(whole) // 2, len(whole) - 1):
        progress = TextProgress()
        stream = sequences(config, TOKENIZER, tokens, 0, "shuffled", progress=progress)
        assert len(list(islice(stream, done))) == done
        del stream
        position = progress.position
        assert position.sequences <= done
        assert len(position.rest) < CONTEXT
        tokenised.clear()
        rest = sequences(config, TOKENIZER, tokens, 0, "shuffled", skip=done, progress=TextProgress(position))
        assert [row.tolist() for row in rest] == whole[done:]
        left = first[position.documents :]
        common = min(len(left), len(tokenised))  # how far it reads ahead varies
        assert tokenised[:common] == left[:common]
        assert common > 0


def test_check_text_length(config: TextConfig) -> None:
    count = len(token_ids(TOKENIZER, documents(config)))
    with pytest.raises(UserError, match=f"has {count:,} tokens, but 1,000,000 are needed"):
        check_text_length(config, TOKENIZER, 10**6)
    whole = count // CONTEXT * CONTEXT
    check_text_length(config, TOKENIZER, whole + CONTEXT - 1)  # incomplete sequences are not needed
    with pytest.raises(UserError, match=f"has {count:,} tokens"):
        check_text_length(config, TOKENIZER, whole + CONTEXT)
    check_text_length(config.model_copy(update={"on_short_text": "repeat"}), TOKENIZER, 10**6)


def test_each_repetition_has_another_order(tmp_path: Path) -> None:
    rows = [f"row {number}" for number in range(30)]
    config = write(tmp_path / "rows.jsonl", rows).model_copy(update={"on_short_text": "repeat"})
    once = len(token_ids(TOKENIZER, rows))
    tokens = 3 * once // CONTEXT * CONTEXT
    plain = np.concatenate(list(sequences(config, TOKENIZER, tokens, 0, "as-is"))).tolist()
    assert plain == (token_ids(TOKENIZER, rows) * 3)[:tokens]
    shuffled = np.concatenate(list(sequences(config, TOKENIZER, tokens, 0, "shuffled"))).tolist()
    assert sorted(shuffled[:once]) == sorted(shuffled[once : 2 * once]) == sorted(plain[:once])
    assert len({tuple(shuffled[:once]), tuple(shuffled[once : 2 * once]), tuple(plain[:once])}) == 3
    assert collected(config, tokens, order="shuffled", skip=9) == np.reshape(shuffled, (-1, CONTEXT))[9:].tolist()


def test_a_text_shorter_than_a_sequence_is_repeated(tmp_path: Path) -> None:
    config = write(tmp_path / "rows.jsonl", ["x"]).model_copy(update={"on_short_text": "repeat"})
    assert collected(config, 1) == [token_ids(TOKENIZER, ["x"] * CONTEXT)[:CONTEXT]]


def test_a_tokenizers_maximum_length_is_ignored(config: TextConfig, caplog: pytest.LogCaptureFixture) -> None:
    assert TOKENIZER.model_max_length < 30
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.enable_truncation(3)
    cut = list(sequences(config, tokenizer, 800, 0, "as-is"))
    assert np.array_equal(cut, collected(config, 800))
    assert caplog.text == ""


def test_invalid_settings_raise_immediately_and_damage_when_it_is_reached(config: TextConfig, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="eos_token"):
        sequences(config, metaspace(), 100, 0, "as-is")
    with pytest.raises(NotFoundError):
        sequences(TextConfig(dataset=str(tmp_path / "nothing.txt")), TOKENIZER, 100, 0, "as-is")
    config = write(tmp_path / "rows.jsonl", LINES * 60)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write("{broken\n")
    assert collected(config, 100)
    with pytest.raises(UserError, match="line 181"):
        collected(config, 10**6)


def test_texts_and_token_ids_in_one_column_are_both_read(tmp_path: Path) -> None:
    """Token ids get no start token."""
    rows: list[str | list[int]] = ["ab", [900, 7], "", "c", [5], [6, 6]]
    path = tmp_path / "mixed.jsonl"
    path.write_text("".join(json.dumps({"input_ids": row}) + "\n" for row in rows))
    start, ids = TOKENIZER.eos_token_id, TOKENIZER.convert_tokens_to_ids
    expected = [start, ids("a"), ids("b"), 900, 7, start, ids("c"), 5, 6, 6]
    config = TextConfig(dataset=str(path), column="input_ids", context_length=10)
    (row,) = sequences(config, TOKENIZER, 10, 0, "as-is")
    assert row.tolist() == expected


@pytest.mark.parametrize("value", [[1, 2**31], [1.5], [True], ["a"], {"a": 1}, 3])
def test_other_values_in_a_column_are_errors(tmp_path: Path, value: object) -> None:
    path = tmp_path / "values.jsonl"
    path.write_text(json.dumps({"text": value}) + "\n")
    with pytest.raises(UserError, match="not text or lists of token ids"):
        list(sequences(TextConfig(dataset=str(path), context_length=8), TOKENIZER, 8, 0, "as-is"))
