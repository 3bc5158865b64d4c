"""JSON, CSV and Parquet: one file of experts, one of contexts, written as they are read from the store."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from backend.exporting.rows import Row

EXPERT_COLUMNS = (
    "expert",
    "label",
    "automatic",
    "tags",
    "usage",
    "active_tokens",
    "mean",
    "largest",
    "p99",
    "entropy",
    "measured",
    "added_loss",
    "kl_up",
    "output_share",
    "input_dependence",
    "top_tokens",
    "histogram",
    "histogram_high",
    "intervals",
)
CONTEXT_COLUMNS = (
    "expert",
    "interval",
    "rank",
    "sequence",
    "position",
    "coefficient",
    "token_ids",
    "tokens",
    "active",
)


class Table(Protocol):
    """A file that rows are added to."""

    def add(self, rows: Sequence[Row]) -> None:
        """Write some rows."""
        ...


class JsonTable:
    """A JSON array, a row a line."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = stack.enter_context(path.open("w", encoding="utf-8"))
        self._file.write("[")
        stack.callback(self._end)
        self._between = "\n"

    def add(self, rows: Sequence[Row]) -> None:
        """Write some rows."""
        for row in rows:
            self._file.write(self._between + json.dumps(row, ensure_ascii=False))
            self._between = ",\n"

    def _end(self) -> None:
        self._file.write("\n]\n")


class CsvTable:
    """Comma-separated values with a head; what is a list in a row is JSON in its cell."""

    def __init__(self, path: Path, columns: Sequence[str], stack: ExitStack) -> None:
        file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
        self._writer = csv.DictWriter(file, columns)
        self._writer.writeheader()

    def add(self, rows: Sequence[Row]) -> None:
        """Write some rows."""
        self._writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | tuple | Mapping) else value


class ParquetTable:
    """Parquet with nested columns, a row group for every chunk."""

    def __init__(self, path: Path, schema: Any, stack: ExitStack) -> None:
        from pyarrow import parquet

        self._schema = schema
        self._writer = stack.enter_context(parquet.ParquetWriter(path, schema, compression="zstd"))

    def add(self, rows: Sequence[Row]) -> None:
        """Write some rows."""
        import pyarrow

        if rows:
            self._writer.write_table(pyarrow.Table.from_pylist([_listed(row) for row in rows], self._schema))


def _listed(row: Row) -> Row:
    """Active tokens and intervals as named fields: a list of mixed numbers has no column type."""
    names = {"active": ("position", "coefficient", "rank"), "intervals": ("low", "high", "active_tokens")}
    return {
        name: [dict(zip(names[name], values, strict=True)) for values in value] if name in names else value
        for name, value in row.items()
    }


def _schemas() -> tuple[Any, Any]:
    import pyarrow as pa

    whole, number, text = pa.int64(), pa.float64(), pa.string()
    top_token = pa.struct([("id", whole), ("text", text), ("count", whole), ("share", number)])
    edges = pa.struct([("low", number), ("high", number), ("active_tokens", number)])
    active = pa.struct([("position", whole), ("coefficient", number), ("rank", whole)])
    scores = [("balanced_accuracy", number), ("precision", number), ("recall", number), ("tested", whole)]
    special = {
        "label": text,
        "automatic": pa.struct([("label", text), ("maker", text), *scores]),
        "tags": pa.list_(text),
        "measured": pa.bool_(),
        "top_tokens": pa.list_(top_token),
        "histogram": pa.list_(whole),
        "intervals": pa.list_(edges),
        "token_ids": pa.list_(whole),
        "tokens": pa.list_(text),
        "active": pa.list_(active),
    } | dict.fromkeys(("expert", "active_tokens", "interval", "rank", "sequence", "position"), whole)
    experts, contexts = (
        pa.schema([(name, special.get(name, number)) for name in columns])
        for columns in (EXPERT_COLUMNS, CONTEXT_COLUMNS)
    )
    return experts, contexts


@contextmanager
def tables(folder: Path, suffix: str) -> Iterator[tuple[Table, Table]]:
    """Files of experts and of contexts in a folder, in the format of a suffix: json, csv or parquet."""
    experts, contexts = folder / f"experts.{suffix}", folder / f"contexts.{suffix}"
    with ExitStack() as stack:
        if suffix == "json":
            yield JsonTable(experts, stack), JsonTable(contexts, stack)
        elif suffix == "csv":
            yield CsvTable(experts, EXPERT_COLUMNS, stack), CsvTable(contexts, CONTEXT_COLUMNS, stack)
        else:
            of_experts, of_contexts = _schemas()
            yield ParquetTable(experts, of_experts, stack), ParquetTable(contexts, of_contexts, stack)
