"""Readers of texts and labels: all formats and compressions; errors name the file and line.

Damaged and malicious files give documents or a UserError, within a memory limit.
"""

import csv
import gzip
import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.data import readers
from mxd.trainer.data.readers import only_texts, pieces, read_documents, read_labelled, read_piece
from mxd.trainer.errors import UserError
from tests.helpers.fuzzing import damaged, tried

texts = st.lists(st.text(st.characters(codec="utf-8"), max_size=20), min_size=1, max_size=8)


def compress(path: Path, content: bytes) -> Path:
    """Write ``content`` with the compression of the file name."""
    compression = {".gz": "gzip", ".zst": "zstd"}.get(path.suffix)
    with pa.output_stream(str(path), compression=compression) as file:
        file.write(content)
    return path


def as_jsonl(rows: list[str]) -> bytes:
    return "".join(json.dumps({"id": 1, "text": row}) + "\n" for row in rows).encode()


def as_csv(rows: list[str]) -> bytes:
    content = io.StringIO(newline="")
    csv.writer(content).writerows([["id", "text"], *(["1", row] for row in rows)])
    return content.getvalue().encode()


def failure(path: Path, column: str = "text") -> str:
    with pytest.raises(UserError) as raised:
        list(read_documents(path, column))
    assert path.name in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
@pytest.mark.parametrize(("suffix", "write"), [(".jsonl", as_jsonl), (".csv", as_csv)])
@given(rows=texts)
def test_rows_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    suffix: str,
    write: Callable[[list[str]], bytes],
    ending: str,
    rows: list[str],
) -> None:
    path = compress(tmp_path_factory.getbasetemp() / f"rows{suffix}{ending}", write(rows))
    assert list(read_documents(path, "text")) == rows


PLAIN = "Zeile eins\n\nZeile zwei: größer, 日本語 🦊\n"
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        *((name, PLAIN.encode(), [PLAIN]) for name in ("a.txt", "a.TXT", "a.txt.gz", "a.txt.zst")),
        ("a.txt", BYTE_ORDER_MARK + b"one\r\ntwo\r\n", ["one\ntwo\n"]),
        ("a.csv", BYTE_ORDER_MARK + b"text\r\none\r\n", ["one"]),
        ("a.jsonl", BYTE_ORDER_MARK + b'{"text": "one"}\r\n\r\n', ["one"]),
        ("a.jsonl", b'{"text": null}\n\n{"text": "one"}', ["", "one"]),
        ("a.csv", b"id,text\n1\n\n2,one\n", ["one"]),
        ("a.jsonl", rb'{"text": "a \ud83d b \ud83e\udd8a"}', ["a \ufffd b 🦊"]),  # a lone surrogate is replaced
    ],
)
def test_documents_of_a_file(tmp_path: Path, name: str, content: bytes, expected: list[str]) -> None:
    assert list(read_documents(compress(tmp_path / name, content), "text")) == expected


def test_a_long_plain_file_is_split_at_a_line_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PLAIN_BYTES", 100)
    content = "".join(f"line {number}, größer 🦊\n" for number in range(100))
    found = list(only_texts(read_documents(compress(tmp_path / "a.txt.gz", content.encode()), "text"), "a.txt.gz"))
    assert "".join(found) == content
    assert len(found) > 10
    assert all(document.endswith("\n") and len(document.encode()) < 140 for document in found)


def test_a_long_line_is_split_between_characters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PLAIN_BYTES", 100)
    monkeypatch.setattr(readers, "_LINE_BYTES", 7)
    content = "🦊é" * 500
    found = list(only_texts(read_documents(compress(tmp_path / "a.txt", content.encode()), "text"), "a.txt"))
    assert "".join(found) == content
    assert len(found) > 10


def test_missing_values_of_a_parquet_file_are_empty_documents(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([None, "one"], pa.large_string())}), tmp_path / "a.parquet")
    assert list(read_documents(tmp_path / "a.parquet", "text")) == ["", "one"]


def test_a_missing_column_lists_the_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "text": ["x"]}), tmp_path / "a.parquet")
    compress(tmp_path / "a.jsonl", as_jsonl(["x"]))
    compress(tmp_path / "a.csv", as_csv(["x"]))
    for path in tmp_path.iterdir():
        assert "'id', 'text'" in failure(path, "body")
    assert "holds int, not text" in failure(tmp_path / "a.parquet", "id")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n\n{"text": \n', "line 3"),
        ("a.jsonl", b'{"text": "x"}\n["x"]\n', "line 2"),
        ("a.jsonl", b'{"text": "x"}\n{"text": 7}\n', "line 2 of"),
        ("a.jsonl", b'{"text": "x"}\n{"text": "\xff"}\n', "Line 2"),
        ("a.jsonl", b"[" * 200_000, "line 1"),
        ("a.jsonl", b'{"text": ' * 100_000, "line 1"),
        ("a.jsonl", b'{"text": ' + b"9" * 10_000 + b"}", "line 1"),
        ("a.csv", b'text\nx\n"x\n\n', "quote"),
        ("a.csv", b"text\nx\n\xe9t\xe9\n", "Line 3"),
        ("a.txt", b"one\ntwo\nthr\xe9e\n", "Line 3"),
        ("a.txt", b"one\ntwo\xe2\x82", "Line 2"),
        ("a.txt.gz", b"no gzip at all", "Cannot read"),
        ("a.txt.zst", b"no zstd at all", "Cannot read"),
        ("a.parquet", b"no parquet at all", "Cannot read"),
        ("a.parquet", b"", "Cannot read"),
    ],
)
def test_damage_is_reported(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert message in failure(tmp_path / name)


@pytest.mark.parametrize("ending", [".gz", ".zst"])
@pytest.mark.parametrize("share", [0.5, 0.999])
def test_truncated_files_are_detected(tmp_path: Path, ending: str, share: float) -> None:
    rows = as_jsonl([f"line {number * 7919 % 10_007}" for number in range(10_000)])
    path = compress(tmp_path / f"a.jsonl{ending}", rows)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    assert "Cannot read" in failure(path)


def test_an_empty_file_has_no_documents(tmp_path: Path) -> None:
    for name in ("a.txt", "a.jsonl", "a.csv", "a.txt.gz", "a.jsonl.zst"):
        (tmp_path / name).touch()
        assert list(read_documents(tmp_path / name, "text")) == []


@given(
    rows=st.lists(st.text(st.characters(codec="utf-8"), max_size=20), max_size=30),
    size=st.integers(1, 60),
    final=st.booleans(),
)
def test_each_row_is_in_one_piece(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], size: int, final: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    content = as_jsonl(rows) if final else as_jsonl(rows).removesuffix(b"\n")
    path = compress(folder / "rows.jsonl", content)
    assert [row for piece in pieces(path, size) for row in read_piece(piece, "text")] == rows
    pq.write_table(pa.table({"text": pa.array(rows, pa.string())}), folder / "rows.parquet", row_group_size=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_PIECE_ROWS", 2)
        divided = pieces(folder / "rows.parquet", size)
    assert [row for piece in divided for row in read_piece(piece, "text")] == rows
    assert list(read_documents(folder / "rows.parquet", "text")) == rows


@given(
    text=st.text(st.characters(codec="utf-8", exclude_characters="\r\ufeff"), max_size=300),
    size=st.integers(1, 60),
    near=st.integers(4, 40),
)
def test_the_pieces_of_a_plain_text_make_up_the_text(
    tmp_path_factory: pytest.TempPathFactory, text: str, size: int, near: int
) -> None:
    path = compress(tmp_path_factory.getbasetemp() / "a.txt", text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "_LINE_BYTES", near)
        parts = [part for piece in pieces(path, size) for part in read_piece(piece, "text")]
    assert "".join(map(str, parts)) == text


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl.gz", "a.txt.zst"])
def test_files_read_from_their_beginning_are_one_piece(tmp_path: Path, name: str) -> None:
    write = as_csv if ".csv" in name else as_jsonl
    path = compress(tmp_path / name, write([str(number) for number in range(1000)]))
    (piece,) = pieces(path, 10)
    assert list(read_piece(piece, "text")) == list(read_documents(path, "text"))


def labels(path: Path) -> list[tuple[str, str]]:
    return [(one.label, one.text) for one in read_labelled(path, "text", "label")]


def test_numbers_are_labels_in_every_format(tmp_path: Path) -> None:
    rows = [("a", 0), ("b", 1), ("c", None), ("d", 10)]
    (tmp_path / "l.jsonl").write_text("".join(json.dumps({"text": t, "label": n}) + "\n" for t, n in rows))
    (tmp_path / "l.csv").write_text("text,label\n" + "".join(f"{t},{'' if n is None else n}\n" for t, n in rows))
    texts, numbers = [text for text, _ in rows], [number for _, number in rows]
    for name, kind in (("int", pa.int64()), ("float", pa.float64()), ("small", pa.int8())):
        pq.write_table(pa.table({"text": texts, "label": pa.array(numbers, kind)}), tmp_path / f"{name}.parquet")
    expected = [("0", "a"), ("1", "b"), ("10", "d")]
    for file in sorted(tmp_path.iterdir()):
        assert labels(file) == expected, file


def test_booleans_and_fractions_are_labels(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text("".join(json.dumps({"text": "x", "label": label}) + "\n" for label in (True, False, 0.5, "é")))
    assert [label for label, _ in labels(path)] == ["true", "false", "0.5", "é"]


@pytest.mark.parametrize(("label", "kind"), [(["a"], "list"), ({"a": 1}, "dict")])
def test_other_labels_are_errors_that_name_no_flag(tmp_path: Path, label: object, kind: str) -> None:
    path = tmp_path / "l.jsonl"
    path.write_text(json.dumps({"text": "x", "label": label}) + "\n")
    with pytest.raises(UserError, match=rf"holds {kind}, not labels \(text, numbers or Booleans\)\."):
        labels(path)
    path.write_text(json.dumps({"text": 3, "label": 1}) + "\n")
    with pytest.raises(UserError, match=r"holds int, not text .*Choose another column\.$"):
        labels(path)
    with pytest.raises(UserError, match=r"No column 'kind' in line 1 .*Choose one of these: 'text', 'label'\.$"):
        list(read_labelled(path, "text", "kind"))


ROWS = ["the old fox sang.", 'größer, "quoted"\nand on', "日本語 🦊", "", "x" * 300] * 20
SUFFIXES = [suffix + ending for suffix in (".txt", ".jsonl", ".csv") for ending in ("", ".gz", ".zst")] + [".parquet"]
MEGABYTE = 10**6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_give_documents_or_a_user_error(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": ROWS}), path, row_group_size=30, compression="zstd")
    else:
        lines = {"txt": "\n".join(ROWS).encode(), "jsonl": as_jsonl(ROWS), "csv": as_csv(ROWS)}
        compress(path, lines[suffix.split(".")[1]])

    @tried(30)
    @given(content=damaged(path.read_bytes()) | st.binary(max_size=400))
    def read_all(content: bytes) -> None:
        path.write_bytes(content)
        try:
            assert all(isinstance(document, str) for document in read_documents(path, "text"))
        except UserError as error:
            assert path.name in str(error)
            assert "\n" not in str(error)

    read_all()


@pytest.mark.parametrize(
    ("name", "begin", "pad", "message"),
    [
        ("bomb.jsonl.gz", b'{"text": "', b"a", "Line 1 of .* is longer than 64 MiB"),
        ("bomb.csv.gz", b"text\n", b"a", "Line 2 of .* is longer than 64 MiB"),
        ("bomb.csv.gz", b'text\n"', b"a" * 99 + b"\n", "a quote that is not closed"),
    ],
)
def test_decompression_bombs_are_rejected_within_the_memory_limit(
    name: str, begin: bytes, pad: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(begin)
        for _ in range(100):
            file.write(pad * (MEGABYTE // len(pad)))
    assert path.stat().st_size < MEGABYTE
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=message):
            list(read_documents(path, "text"))
        assert tracemalloc.get_traced_memory()[1] < 300 * MEGABYTE
    finally:
        tracemalloc.stop()
