"""Sequences hold the documents one after the other, exactly as many as wanted, the same from wherever one starts."""

from __future__ import annotations

import json
import threading
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tests.trainer.tiny_tokenizers import LINES, byte_fallback, byte_level, metaspace
from trainer import text as module
from trainer.config import TextConfig
from trainer.documents import Order, documents
from trainer.errors import NotFoundError, UserError
from trainer.text import blocks, refuse_short, sequences

TOKENIZER = byte_level()
CONTEXT = 8


def write(path: Path, rows: list[str]) -> TextConfig:
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    return TextConfig(text=str(path), context=CONTEXT)


def token_ids(tokenizer: PreTrainedTokenizerFast, rows: list[str]) -> list[int]:
    """All tokens of some documents, the slow way."""
    separator = tokenizer.eos_token_id if tokenizer.eos_token_id is not None else tokenizer.bos_token_id
    found: list[int] = []
    for row in rows:
        found += [separator, *tokenizer.backend_tokenizer.encode(row, add_special_tokens=False).ids]
    return found


def collected(config: TextConfig, tokens: int, seed: int = 0, order: Order = "as-is", skip: int = 0) -> list[list[int]]:
    return [row.tolist() for row in sequences(config, TOKENIZER, tokens, seed, order, skip)]


@pytest.fixture
def config(tmp_path: Path) -> TextConfig:
    return write(tmp_path / "rows.jsonl", [f"{number} {line}" for number in range(40) for line in LINES])


@pytest.mark.parametrize("tokenizer", [TOKENIZER, byte_fallback()], ids=["end of text", "beginning of text"])
def test_documents_follow_each_other_behind_separators(config: TextConfig, tokenizer: PreTrainedTokenizerFast) -> None:
    expected = token_ids(tokenizer, list(documents(config)))
    tokens = len(expected) // CONTEXT * CONTEXT
    rows = list(sequences(config, tokenizer, tokens, 0, "as-is"))
    assert np.concatenate(rows).tolist() == expected[:tokens]
    assert all(row.shape == (CONTEXT,) and row.dtype == np.int32 for row in rows)


@given(lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12), wanted=st.integers(1, 200))
def test_packing_loses_no_token(lengths: list[int], wanted: int) -> None:
    stream = np.arange(sum(lengths), dtype=np.int32)
    parts = np.split(stream, np.cumsum(lengths)[:-1])
    config = TextConfig(text="rows.txt", context=CONTEXT)
    number = max(1, wanted // CONTEXT)
    packed = module._packed(config, iter(parts), number, skip=0)
    possible = min(number, len(stream) // CONTEXT)
    assert np.array_equal([*islice(packed, possible)], stream[: possible * CONTEXT].reshape(possible, CONTEXT).tolist())
    if possible == number:
        assert list(packed) == []
    else:
        with pytest.raises(UserError, match=f"has {len(stream):,} tokens and {number * CONTEXT:,} are wanted"):
            next(packed)


def test_exactly_as_many_sequences_as_fit(config: TextConfig) -> None:
    for tokens, number in [(1, 1), (CONTEXT, 1), (2 * CONTEXT - 1, 1), (2 * CONTEXT, 2), (100, 100 // CONTEXT)]:
        assert len(collected(config, tokens)) == number


@pytest.mark.parametrize("order", get_args(Order))
def test_skipping_is_dropping_the_first(config: TextConfig, order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 3)
    whole = collected(config, 1000, seed=3, order=order)
    for skip in (0, 1, 7, len(whole) - 1, len(whole), len(whole) + 5):
        assert collected(config, 1000, seed=3, order=order, skip=skip) == whole[skip:]


def test_batches_of_documents_do_not_show(config: TextConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = collected(config, 1000)
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 1)
    assert collected(config, 1000) == whole
    monkeypatch.setattr(module, "_BATCH_CHARACTERS", 100)
    monkeypatch.setattr(module, "_BATCH_DOCUMENTS", 10)
    assert collected(config, 1000) == whole


def test_shuffled_sequences_depend_on_the_seed_alone(config: TextConfig) -> None:
    first = collected(config, 800, seed=1, order="shuffled")
    assert first == collected(config, 800, seed=1, order="shuffled")
    assert first != collected(config, 800, seed=2, order="shuffled")
    assert first != collected(config, 800, seed=1)


def test_a_short_text_says_how_short_it_is(config: TextConfig) -> None:
    there = len(token_ids(TOKENIZER, list(documents(config))))
    stream = sequences(config, TOKENIZER, 10**6, 0, "as-is")
    assert len(list(islice(stream, there // CONTEXT))) == there // CONTEXT
    with pytest.raises(UserError, match=rf"has {there:,} tokens and 1,000,000 are wanted; .*--when-short repeat"):
        next(stream)


def test_a_short_text_is_refused_before_any_of_it_is_used(config: TextConfig) -> None:
    there = len(token_ids(TOKENIZER, list(documents(config))))
    with pytest.raises(UserError, match=f"has {there:,} tokens and 1,000,000 are wanted"):
        refuse_short(config, TOKENIZER, 10**6)
    whole = there // CONTEXT * CONTEXT
    refuse_short(config, TOKENIZER, whole + CONTEXT - 1)  # what is no whole sequence is not wanted
    with pytest.raises(UserError, match=f"has {there:,} tokens"):
        refuse_short(config, TOKENIZER, whole + CONTEXT)
    refuse_short(config.model_copy(update={"when_short": "repeat"}), TOKENIZER, 10**6)


def test_a_text_that_is_long_enough_by_its_size_is_not_counted(tmp_path: Path) -> None:
    config = write(tmp_path / "rows.jsonl", ["a" * 64 * CONTEXT])
    refuse_short(config, None, CONTEXT)  # type: ignore[arg-type]  # no tokenizer is asked


def test_a_short_text_is_repeated_in_other_orders(tmp_path: Path) -> None:
    rows = [f"row {number}" for number in range(30)]
    config = write(tmp_path / "rows.jsonl", rows).model_copy(update={"when_short": "repeat"})
    once = len(token_ids(TOKENIZER, rows))
    tokens = 3 * once // CONTEXT * CONTEXT
    plain = np.concatenate(list(sequences(config, TOKENIZER, tokens, 0, "as-is"))).tolist()
    assert plain == (token_ids(TOKENIZER, rows) * 3)[:tokens]
    shuffled = np.concatenate(list(sequences(config, TOKENIZER, tokens, 0, "shuffled"))).tolist()
    assert sorted(shuffled[:once]) == sorted(shuffled[once : 2 * once]) == sorted(plain[:once])
    assert len({tuple(shuffled[:once]), tuple(shuffled[once : 2 * once]), tuple(plain[:once])}) == 3
    assert collected(config, tokens, order="shuffled", skip=9) == np.reshape(shuffled, (-1, CONTEXT))[9:].tolist()


def test_a_text_shorter_than_a_sequence_is_repeated(tmp_path: Path) -> None:
    config = write(tmp_path / "rows.jsonl", ["x"]).model_copy(update={"when_short": "repeat"})
    assert collected(config, 1) == [token_ids(TOKENIZER, ["x"] * CONTEXT)[:CONTEXT]]


def test_long_documents_are_no_reason_to_warn(config: TextConfig, caplog: pytest.LogCaptureFixture) -> None:
    assert TOKENIZER.model_max_length < 30
    assert collected(config, 100)
    assert caplog.text == ""


def test_truncation_saved_with_a_tokenizer_is_not_applied(config: TextConfig) -> None:
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.enable_truncation(3)
    cut = list(sequences(config, tokenizer, 800, 0, "as-is"))
    assert np.array_equal(cut, collected(config, 800))


def test_what_is_wrong_is_said_before_anything_is_read(config: TextConfig, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="eos_token"):
        sequences(config, metaspace(), 100, 0, "as-is")
    with pytest.raises(NotFoundError):
        sequences(TextConfig(text=str(tmp_path / "nothing.txt")), TOKENIZER, 100, 0, "as-is")


def test_what_is_wrong_further_on_is_said_when_it_is_reached(tmp_path: Path) -> None:
    config = write(tmp_path / "rows.jsonl", LINES * 60)
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write("{broken\n")
    assert collected(config, 100)
    with pytest.raises(UserError, match="line 181"):
        collected(config, 10**6)


def test_no_thread_is_left_when_the_consumer_stops(config: TextConfig) -> None:
    stream = sequences(config, TOKENIZER, 800, 0, "as-is")
    next(stream)
    del stream
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("ahead")] == []


def test_blocks_hold_the_sequences(config: TextConfig) -> None:
    found = list(blocks(config, TOKENIZER, 10 * CONTEXT, 5, "shuffled", batch=4))
    assert [block.shape for block in found] == [(4, CONTEXT), (4, CONTEXT), (2, CONTEXT)]
    assert all(block.dtype == np.int64 for block in found)
    assert np.concatenate(found).tolist() == collected(config, 10 * CONTEXT, seed=5, order="shuffled")
    rest = np.concatenate(list(blocks(config, TOKENIZER, 10 * CONTEXT, 5, "shuffled", batch=4, skip=3)))
    assert rest.tolist() == np.concatenate(found)[3:].tolist()
