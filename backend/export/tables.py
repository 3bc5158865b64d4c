"""Experts and examples as plain rows, some experts at a time, and as JSON, CSV or Parquet files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.examples import described, stored_examples
from mxd.backend.queries.experts import known, rows_of
from mxd.backend.queries.runs import find_index
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, REAL
from mxd.trainer.storage.database.tables import AblationRecord, ExampleRecord, IndexRecord, RunRecord
from mxd.trainer.utils.callbacks import Callbacks
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

    def entries(self) -> Iterator[tuple[Row, list[Row], AblationRecord | None]]:
        """Yield each expert with its examples and, if they were measured, its effects."""
        examples = {expert: list(rows) for expert, rows in groupby(self.examples, key=lambda row: int(row["expert"]))}
        for row in self.experts:
            yield row, examples.get(row["expert"], []), self.ablations.get(row["expert"])


@dataclass(frozen=True)
class Exported:
    """Context of an export: the run and its database."""

    run: RunRecord
    index: IndexRecord
    vocabulary: Vocabulary


def chunks(session: Session, exported: Exported, callbacks: Callbacks) -> Iterator[Chunk]:
    """Yield all experts of an indexed run by id, dead ones included. Raises CancelledError if it was cancelled."""
    total = exported.run.num_experts
    for first in range(0, total, AT_A_TIME):
        callbacks.check_cancelled("Cancelled; nothing was written.")
        end = min(first + AT_A_TIME, total)
        yield chunk_of(session, exported, range(first, end))
        callbacks.on_progress(end, total, "")


def open_run(session: Session, run: RunRecord, vocabulary: Vocabulary) -> Exported:
    """Open an indexed run for export. Raises NoIndexError if it has no index."""
    return Exported(run, find_index(session, run), vocabulary)


def chunk_of(session: Session, exported: Exported, experts: Sequence[int]) -> Chunk:
    run, vocabulary = exported.run, exported.vocabulary
    edges = {expert: record.bins for expert, record in known(session, run, experts).items()}
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


Append = Callable[[Sequence[Row]], object]
"""Appends rows to a file."""


def _json(path: Path, stack: ExitStack) -> Append:
    """Open a JSON array, one row per line."""
    file = stack.enter_context(path.open("w", encoding="utf-8"))
    file.write("[")
    stack.callback(file.write, "\n]\n")
    between = chain(["\n"], repeat(",\n"))
    return lambda rows: file.writelines(next(between) + json.dumps(row, ensure_ascii=False) for row in rows)


def _csv(path: Path, columns: Sequence[str], stack: ExitStack) -> Append:
    """Open comma-separated values with a header; lists are JSON in their cell."""
    writer = csv.DictWriter(stack.enter_context(path.open("w", encoding="utf-8", newline="")), columns)
    writer.writeheader()

    def cell(value: Any) -> Any:
        if isinstance(value, list | tuple | Mapping):
            return printable(json.dumps(value, ensure_ascii=False))
        return printable(spreadsheet_text(value)) if isinstance(value, str) else value

    return lambda rows: writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)


def _parquet(path: Path, schema: Any, stack: ExitStack) -> Append:
    """Open a Parquet file with nested columns, one row group per chunk."""
    import pyarrow
    from pyarrow import parquet

    writer = stack.enter_context(parquet.ParquetWriter(path, schema, compression="zstd"))
    # Active tokens and bins get named fields, because a list of mixed types has no column type.
    names = {"active": ("position", "activation", "rank"), "bins": ("low", "high", "active_tokens")}

    def append(rows: Sequence[Row]) -> None:
        listed = [
            {
                name: [dict(zip(names[name], values, strict=True)) for values in value] if name in names else value
                for name, value in row.items()
            }
            for row in rows
        ]
        if listed:
            writer.write_table(pyarrow.Table.from_pylist(listed, schema))

    return append


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
def tables(folder: Path, suffix: str) -> Iterator[list[Append]]:
    """Open files of experts and examples in a folder, in the format of a suffix: json, csv or parquet."""
    paths = folder / f"experts.{suffix}", folder / f"examples.{suffix}"
    with ExitStack() as stack:
        if suffix == "json":
            yield [_json(path, stack) for path in paths]
        elif suffix == "csv":
            listed = FILE_COLUMNS, EXAMPLE_COLUMNS
            yield [_csv(path, columns, stack) for path, columns in zip(paths, listed, strict=True)]
        else:
            yield [_parquet(path, schema, stack) for path, schema in zip(paths, _schemas(), strict=True)]
