"""Labels of texts: text, numbers and Booleans, the same from CSV, JSONL and Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mxd.trainer.data.readers import read_labelled
from mxd.trainer.errors import UserError


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
