"""Documents and sequences: sources, order, fingerprints, packing, counts, repetition, errors."""

import json
import random
import statistics
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, get_args

import datasets
import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from mxd.trainer.config.training import TextConfig
from mxd.trainer.data import sequences as module
from mxd.trainer.data.readers import Document, only_texts
from mxd.trainer.data.sequences import (
    Order,
    TextProgress,
    check_text_length,
    documents,
    fingerprint,
    sequences,
    tokenize_documents,
)
from mxd.trainer.errors import NotFoundError, UsageWarning, UserError
from mxd.trainer.language_model.tokenizer import after_start, prompt_ids, start_token_id
from tests.helpers.runs import END, LINES, byte_fallback, byte_level, metaspace, tiny_language_model
from tests.trainer.data.test_readers import as_csv, as_jsonl, compress


def write_jsonl(path: Path, rows: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    return compress(path, as_jsonl(rows))


@pytest.fixture
def rows(tmp_path: Path) -> TextConfig:
    path = write_jsonl(tmp_path / "rows.jsonl", [f"document {number}" for number in range(300)])
    return TextConfig(dataset=str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "texts"
    write_jsonl(root / "b" / "rows.jsonl", ["two", "three"])
    (root / "a.txt").write_text("one")
    (root / "c.csv").write_text("text,id\nfour,1\n")
    (root / "README.md").write_text("not this")
    (root / "b" / ".hidden.txt").write_text("nor this")
    (root / ".git").mkdir()
    (root / ".git" / "x.txt").write_text("nor that")
    return root


def failure(config: TextConfig) -> str:
    with pytest.raises(UserError) as raised:
        list(documents(config))
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_a_folder_is_read_recursively_in_name_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for name in (str(folder), "texts"):  # which could be a dataset of the Hub
        assert list(documents(TextConfig(dataset=name))) == ["one", "two", "three", "four"]


def test_empty_documents_are_skipped(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["", "one", " \n\t", " two "])
    assert list(documents(TextConfig(dataset=str(path)))) == ["one", " two "]


def test_shuffling_is_a_deterministic_permutation(rows: TextConfig) -> None:
    plain = list(documents(rows))
    shuffled = list(documents(rows, "shuffled", seed=1))
    assert shuffled == list(documents(rows, "shuffled", seed=1))
    assert shuffled != plain
    assert shuffled != list(documents(rows, "shuffled", seed=2))
    assert sorted(shuffled) == sorted(plain)
    assert list(documents(rows, "sampled", seed=1)) == plain, "a small text is sampled as it is"


@given(st.lists(st.text(min_size=1, max_size=9)), st.integers(1, 5), st.integers(1, 20), st.integers(0, 9))
def test_the_shuffle_buffer_respects_its_limits(items: list[str], size: int, characters: int, seed: int) -> None:
    output: list[str] = []

    def asked_for() -> Iterator[str]:
        for number, item in enumerate(items):
            waiting = len("".join(items[:number])) - len("".join(output))
            assert number - len(output) <= size
            assert number - len(output) <= 1 or waiting <= characters
            yield item

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BUFFER_DOCUMENTS", size)
        patch.setattr(module, "BUFFER_CHARACTERS", characters)
        for document in only_texts(module._shuffled(asked_for(), random.Random(seed)), "The list"):
            output.append(document)
    assert sorted(output) == sorted(items)


def test_the_first_documents_are_a_uniform_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shuffle in memory, and the first of several passes."""
    monkeypatch.setattr(module, "MOST_DOCUMENTS", 2)
    for firsts in (
        [next(module._shuffled(iter("abcd"), random.Random(seed))) for seed in range(400)],
        [next(module._in_passes(lambda: iter("abcd"), random.Random(seed))) for seed in range(400)],
    ):
        assert all(60 < firsts.count(letter) < 140 for letter in "abcd")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Documents that exceed the limits, numbered in their order."""
    monkeypatch.setattr(module, "MOST_DOCUMENTS", 1000)
    monkeypatch.setattr(module, "BUFFER_DOCUMENTS", 100)
    monkeypatch.setattr(module, "PIECE_BYTES", 2000)
    monkeypatch.setattr(module, "OPEN_PIECES", 32)
    return [f"{number} {'word ' * (number % 40)}größer" for number in range(20_000)]


def written(tmp_path: Path, kind: str, rows: list[str]) -> Path:
    if kind.startswith("."):
        return compress(tmp_path / f"rows{kind}", as_csv(rows) if ".csv" in kind else as_jsonl(rows))
    if kind == "folder":
        for start in range(0, len(rows), 5000):
            write_jsonl(tmp_path / "folder" / f"{start}.jsonl", rows[start : start + 5000])
        return tmp_path / "folder"
    row_group_size = 100 if kind == "many row groups" else None
    pq.write_table(pa.table({"text": rows}), tmp_path / "rows.parquet", row_group_size=row_group_size)
    return tmp_path / "rows.parquet"


@pytest.mark.parametrize(
    "kind", [".jsonl", "one row group", "many row groups", "folder", ".jsonl.gz", ".csv", ".csv.zst"]
)
@pytest.mark.parametrize("order", ["shuffled", "sampled"])
def test_the_beginning_of_a_shuffled_large_text_is_from_everywhere(
    large: list[str], tmp_path: Path, kind: str, order: Literal["shuffled", "sampled"]
) -> None:
    config = TextConfig(dataset=str(written(tmp_path, kind, large)))
    shuffled = list(only_texts(documents(config, order, seed=3), "The text"))
    assert sorted(shuffled) == sorted(large)
    numbers = [int(document.split()[0]) for document in shuffled[:400]]
    # 400 independent numbers would have a mean of 10,000 +- 290. Neighbours in a piece make that a few times wider.
    assert 7000 < statistics.mean(numbers) < 13_000
    assert len({number // 2000 for number in numbers}) >= 8
    assert list(islice(documents(config, order, seed=3), 400)) == shuffled[:400]
    assert list(islice(documents(config, order, seed=4), 400)) != shuffled[:400]


@given(st.lists(st.text(min_size=1, max_size=9), max_size=40), st.integers(1, 8), st.integers(1, 30), st.integers(0, 9))
def test_passes_yield_every_document_once_and_hold_few(items: list[str], most: int, characters: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_DOCUMENTS", most)
        patch.setattr(module, "MOST_CHARACTERS", characters)
        passes: list[int] = []

        def read() -> Iterator[Document]:
            passes.append(1)
            return iter(items)

        yielded = list(only_texts(module._in_passes(read, random.Random(seed)), "The list"))
    assert sorted(yielded) == sorted(items)
    assert len(passes) <= 60


def test_a_long_plain_text_is_divided_at_its_lines(
    large: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_CHARACTERS", 100_000)
    (tmp_path / "a.txt").write_text("".join(f"{row}\n" for row in large))
    shuffled = list(only_texts(documents(TextConfig(dataset=str(tmp_path / "a.txt")), "shuffled"), "The text"))
    assert sorted("".join(shuffled).splitlines()) == sorted(large)
    assert shuffled[0].splitlines() != large[: len(shuffled[0].splitlines())]


def test_a_file_too_large_for_passes_warns_that_its_beginning_is_sampled(
    large: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES_IN_PASSES", 20_000)
    config = TextConfig(dataset=str(written(tmp_path, ".jsonl.gz", large)))
    with pytest.warns(UsageWarning, match=r"rows\.jsonl\.gz can be read only from its beginning"):
        shuffled = list(documents(config, "shuffled"))
    assert len(shuffled) == len(large)


def test_a_damaged_line_of_a_large_file_is_named(large: list[str], tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", large)
    with path.open("a") as file:
        file.write("{not JSON}\n")
    with pytest.raises(UserError, match=r"Invalid JSON in line \d+ of .*rows\.jsonl, counted from byte [\d,]+: "):
        list(documents(TextConfig(dataset=str(path)), "shuffled"))


@pytest.mark.parametrize(
    "name",
    ["", " ", "nothing.txt", "./nothing", "~/nothing", "/nothing/here", "a/b/c", "The end.", "many words " * 1000],
)
def test_a_missing_path_is_named(name: str) -> None:
    with pytest.raises(NotFoundError, match="no file or folder"):
        documents(TextConfig(dataset=name))


def test_the_shards_of_a_dataset_are_shuffled(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = {"shard": list(range(40))}
    rows = datasets.IterableDataset.from_generator(
        lambda shard: ({"text": str(each)} for each in shard), gen_kwargs=shards
    )
    requests: list[tuple[object, ...]] = []

    def load(*asked: object, **_: object) -> object:
        requests.append(asked)
        return rows

    monkeypatch.setattr(datasets, "load_dataset", load)
    monkeypatch.setattr(module, "BUFFER_DOCUMENTS", 2)
    config = TextConfig(dataset="corpus:20231101.en")
    shuffled = list(only_texts(documents(config, "sampled", seed=1), "The dataset"))
    assert requests == [("corpus", "20231101.en")]
    assert sorted(shuffled, key=int) == list(documents(config)) == [str(each) for each in range(40)]
    assert max(map(int, shuffled[:5])) > 10  # a buffer of two alone reaches 6
    assert shuffled != list(documents(config, "sampled", seed=2))


def test_the_fingerprint_is_independent_of_the_folder(folder: Path, rows: TextConfig) -> None:
    before = fingerprint(TextConfig(dataset=str(folder)))
    moved = folder.rename(folder.with_name("elsewhere"))
    assert fingerprint(TextConfig(dataset=str(moved))) == before
    assert len(before) == 32
    assert fingerprint(rows) != before


def test_the_fingerprint_depends_on_the_text(folder: Path) -> None:
    config = TextConfig(dataset=str(folder / "a.txt"))
    seen = {fingerprint(config), fingerprint(config.model_copy(update={"column": "body"}))}
    for content in ("One", "onE", "one ", ""):
        (folder / "a.txt").write_text(content)
        seen.add(fingerprint(config))
    (folder / "a.txt").rename(folder / "b.txt")
    seen.add(fingerprint(TextConfig(dataset=str(folder / "b.txt"))))
    assert len(seen) == 7


def test_the_fingerprint_reads_only_the_edges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EDGE_BYTES", 3)
    config = TextConfig(dataset=str(tmp_path / "a.txt"))

    def of(content: str) -> str:
        (tmp_path / "a.txt").write_text(content)
        return fingerprint(config)

    assert of("abcdefghi") == of("abcxxxghi")
    assert len({of("abcdefghi"), of("abxdefghi"), of("abcdefxhi"), of("abcdefgh")}) == 4


@pytest.fixture
def bucket(folder: Path) -> Iterator[str]:
    """The folder in fsspec's file system in memory, with a parquet file."""
    memory = fsspec.filesystem("memory")
    pq.write_table(pa.table({"text": [f"row {number}" for number in range(3000)]}), folder / "d.parquet")
    memory.put(str(folder), "/bucket/texts", recursive=True)
    yield "memory://bucket/texts"
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("order", ["as-is", "shuffled", "sampled"])
def test_a_url_has_the_documents_of_its_local_copy(
    bucket: str, folder: Path, order: Literal["as-is", "shuffled", "sampled"], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in (module.MOST_DOCUMENTS, 100):  # shuffled as a whole, and in pieces
        monkeypatch.setattr(module, "MOST_DOCUMENTS", limit)
        local, remote = (list(documents(TextConfig(dataset=place), order, 3)) for place in (str(folder), bucket))
        assert len(local) == 3004
        assert remote == local


def test_patterns_of_paths_and_urls(bucket: str, folder: Path) -> None:
    for place in (str(folder), bucket):
        assert list(documents(TextConfig(dataset=f"{place}/**/*.jsonl"))) == ["two", "three"]
        assert list(documents(TextConfig(dataset=f"{place}/[ab]*.txt"))) == ["one"]
        assert list(documents(TextConfig(dataset=f"{place}/a.txt"))) == ["one"]
    assert fingerprint(TextConfig(dataset=bucket)) != fingerprint(TextConfig(dataset=f"{bucket}/a.txt"))


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        ("memory://nothing/here", "There is no file at memory://nothing/here"),
        ("nowhere-3://bucket/text.jsonl", "Cannot read nowhere-3://bucket/text.jsonl: Protocol not known"),
        ("missing/*.jsonl", "No .txt, .jsonl, .csv or .parquet file matches 'missing/*.jsonl'"),
        ("other/a.pdf", "Unsupported file: other/a.pdf. Give a .txt"),
        ("other", "holds no .txt"),
        ("blank/a.txt", "holds no documents"),
        ("blank", "holds no documents"),
    ],
)
def test_places_without_documents(dataset: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in {"other/a.pdf": "%PDF", "blank/a.txt": " \n", "blank/b.txt": ""}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert message in failure(TextConfig(dataset=dataset))


TOKENIZER = byte_level()
CONTEXT = 8


def write(path: Path, rows: list[str]) -> TextConfig:
    return TextConfig(dataset=str(write_jsonl(path, rows)), context_length=CONTEXT)


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
    passes = [shuffled[:once], shuffled[once : 2 * once], plain[:once]]
    assert sorted(passes[0]) == sorted(passes[1]) == sorted(passes[2])
    assert len(set(map(tuple, passes))) == 3
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
        collected(TextConfig(dataset=str(path), context_length=8), 8)
