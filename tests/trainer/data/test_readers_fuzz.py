"""Damaged and malicious files give documents or a UserError, within a memory limit."""

import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxd.trainer.data.readers import read_documents
from mxd.trainer.errors import UserError
from tests.helpers.fuzzing import damaged, tried

ROWS = ["the old fox sang.", 'größer, "quoted"\nand on', "日本語 🦊", "", "x" * 300]
SUFFIXES = [suffix + ending for suffix in (".txt", ".jsonl", ".csv") for ending in ("", ".gz", ".zst")] + [".parquet"]
MEGABYTE = 10**6


def whole(suffix: str) -> bytes:
    """Valid file of this format."""
    format = suffix.split(".")[1]
    if format == "parquet":
        written = io.BytesIO()
        pq.write_table(pa.table({"text": ROWS * 20}), written, row_group_size=30, compression="zstd")
        return written.getvalue()
    if format == "csv":
        lines = io.StringIO(newline="")
        csv.writer(lines).writerows([["text"], *([row] for row in ROWS * 20)])
        content = lines.getvalue().encode()
    elif format == "jsonl":
        content = "".join(json.dumps({"text": row}) + "\n" for row in ROWS * 20).encode()
    else:
        content = "\n".join(ROWS * 20).encode()
    codec = {"gz": "gzip", "zst": "zstd"}.get(suffix.rpartition(".")[2])
    return pa.compress(content, codec, asbytes=True) if codec else content


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_files_give_documents_or_a_user_error(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"text{suffix}"
    sound = whole(suffix)

    @tried(30)
    @given(content=damaged(sound) | st.binary(max_size=400))
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


def test_deeply_nested_json_and_long_numbers_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "deep.jsonl"
    for line in ("[" * 200_000, '{"text": ' * 100_000, '{"text": ' + "9" * 10_000 + "}"):
        path.write_text(line + "\n")
        with pytest.raises(UserError, match="line 1 of"):
            list(read_documents(path, "text"))
