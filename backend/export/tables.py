"""Experts and examples as plain rows, some experts at a time, and as JSON, CSV or Parquet files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.examples import described, stored_examples
from mxd.backend.queries.experts import rows_of
from mxd.backend.queries.runs import find_index
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, REAL, ExpertRecord
from mxd.trainer.storage.database.tables import AblationRecord, ExampleRecord, IndexRecord, RunRecord
from mxd.trainer.utils.display import printable, spreadsheet_text

AT_A_TIME = 128
"""Experts per chunk, and per file in formats with several files."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Chunk:
    """Some experts of a run with their examples."""

    experts: Sequence[Row]
    """``ExpertRow`` as JSON, with ``bins``."""
    examples: Sequence[Row]
    """``Example`` as JSON, with its expert."""
    ablations: Mapping[int, AblationRecord]

    def examples_by_expert(self) -> dict[int, list[Row]]:
        """Yield the examples of each expert that has any."""
        return {expert: list(rows) for expert, rows in groupby(self.examples, key=lambda row: int(row["expert"]))}


@dataclass(frozen=True)
class Exported:
    """Context of an export: the run and its database."""

    run: RunRecord
    index: IndexRecord
    vocabulary: Vocabulary


def chunks(session: Session, exported: Exported) -> Iterator[Chunk]:
    """Yield all experts of an indexed run by id, dead ones included."""
    for first in range(0, exported.run.num_experts, AT_A_TIME):
        yield chunk_of(session, exported, range(first, min(first + AT_A_TIME, exported.run.num_experts)))


def open_run(session: Session, run: RunRecord, vocabulary: Vocabulary) -> Exported:
    """Open an indexed run for export. Raises NoIndexError if it has no index."""
    return Exported(run, find_index(session, run), vocabulary)


def chunk_of(session: Session, exported: Exported, experts: Sequence[int]) -> Chunk:
    """Return some experts with their examples."""
    run, vocabulary = exported.run, exported.vocabulary
    within = (ExpertRecord.run_id == run.id, ExpertRecord.expert.in_(experts))
    edges = {row.expert: row.bins for row in session.execute(select(ExpertRecord).where(*within)).scalars()}
    rows = rows_of(session, run, experts, vocabulary)
    order = [ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.rank]
    conditions = [ExampleRecord.run_id == run.id, ExampleRecord.expert.in_(experts)]
    stored = stored_examples(session, conditions, order)
    influence = select(AblationRecord).where(AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts))
    return Chunk(
        experts=[rows[expert].model_dump() | {"bins": edges[expert]} for expert in experts if expert in rows],
        examples=[{"expert": example.expert} | described(example, vocabulary) for example in stored],
        ablations={record.expert: record for record in session.scalars(influence)},
    )


FILE_COLUMNS = (*(column.key for column in EXPERT_COLUMNS), "bins")
EXAMPLE_COLUMNS = ("expert", "bin", "rank", "sequence", "position", "activation", "token_ids", "tokens", "active")


class Table(Protocol):
    """A file that rows are appended to."""

    def add(self, rows: Sequence[Row]) -> None:
        """Append rows."""


class JsonTable:
    """A JSON array, one row per line."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = stack.enter_context(path.open("w", encoding="utf-8"))
        self._file.write("[")
        stack.callback(self._file.write, "\n]\n")
        self._between = "\n"

    def add(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._file.write(self._between + json.dumps(row, ensure_ascii=False))
            self._between = ",\n"


class CsvTable:
    """Comma-separated values with a header; lists are JSON in their cell."""

    def __init__(self, path: Path, columns: Sequence[str], stack: ExitStack) -> None:
        file = stack.enter_context(path.open("w", encoding="utf-8", newline=""))
        self._writer = csv.DictWriter(file, columns)
        self._writer.writeheader()

    def add(self, rows: Sequence[Row]) -> None:
        def cell(value: Any) -> Any:
            if isinstance(value, list | tuple | Mapping):
                return printable(json.dumps(value, ensure_ascii=False))
            return printable(spreadsheet_text(value)) if isinstance(value, str) else value

        self._writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)


class ParquetTable:
    """Parquet with nested columns, one row group per chunk."""

    def __init__(self, path: Path, schema: Any, stack: ExitStack) -> None:
        from pyarrow import parquet

        self._schema = schema
        self._writer = stack.enter_context(parquet.ParquetWriter(path, schema, compression="zstd"))

    def add(self, rows: Sequence[Row]) -> None:
        import pyarrow

        # Active tokens and bins get named fields, because a list of mixed types has no column type.
        names = {"active": ("position", "activation", "rank"), "bins": ("low", "high", "active_tokens")}
        listed = [
            {
                name: [dict(zip(names[name], values, strict=True)) for values in value] if name in names else value
                for name, value in row.items()
            }
            for row in rows
        ]
        if listed:
            self._writer.write_table(pyarrow.Table.from_pylist(listed, self._schema))


def _schemas() -> tuple[Any, Any]:
    import pyarrow as pa

    whole, number, text = pa.int64(), pa.float64(), pa.string()
    top_token = pa.struct([("id", whole), ("text", text), ("count", whole), ("share", number)])
    edges = pa.struct([("low", number), ("high", number), ("active_tokens", number)])
    active = pa.struct([("position", whole), ("activation", number), ("rank", whole)])
    scores = [("balanced_accuracy", number), ("precision", number), ("recall", number), ("test_examples", whole)]
    kinds = dict.fromkeys(("id", "count"), whole) | dict.fromkeys(REAL, number)
    kinds |= {
        "text": text,
        "label": pa.struct([("label", text), ("labeller", text), *scores]),
        "tags": pa.list_(text),
        "tokens": pa.list_(top_token),
        "histogram": pa.list_(whole),
    }
    experts = [(column.key, kinds[column.kind]) for column in EXPERT_COLUMNS]
    examples = dict.fromkeys(EXAMPLE_COLUMNS, whole) | {
        "activation": number,
        "token_ids": pa.list_(whole),
        "tokens": pa.list_(text),
        "active": pa.list_(active),
    }
    return pa.schema([*experts, ("bins", pa.list_(edges))]), pa.schema(list(examples.items()))


@contextmanager
def tables(folder: Path, suffix: str) -> Iterator[tuple[Table, Table]]:
    """Open files of experts and examples in a folder, in the format of a suffix: json, csv or parquet."""
    experts, examples = folder / f"experts.{suffix}", folder / f"examples.{suffix}"
    with ExitStack() as stack:
        if suffix == "json":
            yield JsonTable(experts, stack), JsonTable(examples, stack)
        elif suffix == "csv":
            yield CsvTable(experts, FILE_COLUMNS, stack), CsvTable(examples, EXAMPLE_COLUMNS, stack)
        else:
            expert_schema, example_schema = _schemas()
            yield ParquetTable(experts, expert_schema, stack), ParquetTable(examples, example_schema, stack)
