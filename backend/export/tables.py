"""Experts and examples of a run as files: JSON, CSV, Parquet, Neuronpedia's batches, or a website.

Neuronpedia's batches have the format of SAEDashboard (class ``NeuronpediaDashboardBatch``, sae-dashboard 0.8.0).

    batch-N.json                    128 experts each, without the dead ones
    explanations/batch-N.jsonl.gz   their labels, as rows of Neuronpedia's table ``Explanation``
    skipped_indexes.json            ids of the dead experts

Neuronpedia's converter reads the batches; the explanations have its output format. See docs/interop.md.

Differences from SAEDashboard: ``pos_str`` and ``neg_str`` are the tokens whose log-probability rises and falls most, in
nats, when the expert is added on its own examples (after ``mxd ablate``; empty before). They are not logits of a
decoder row, because an expert is a matrix. Neuron alignment and correlations are not measured and left empty. Examples
are cut to a window around their peak, and an expert has at most ``MAX_BYTES`` bytes.
"""

import csv
import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from mxd.backend.export import TableFormat
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.examples import described, stored_examples
from mxd.backend.queries.experts import known, rows_of
from mxd.backend.queries.runs import find_index, find_run
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, REAL
from mxd.trainer.storage.database.tables import AblationRecord, ExampleRecord, IndexRecord, RunRecord, utc_now
from mxd.trainer.storage.run import Run, check_empty_folder, without_folder
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.display import printable, spreadsheet_text
from mxd.trainer.utils.files import atomic_directory

AT_A_TIME = 128
"""Experts per chunk, and per file in formats with several files."""
Row = dict[str, Any]
Effects = Mapping[str, Sequence[tuple[str, float]]]
"""``promoted`` and ``suppressed``: tokens with the changes of their log-probabilities; empty if not measured."""


@dataclass(frozen=True)
class Chunk:
    """Some experts of a run with their examples."""

    experts: Sequence[Row]
    """``ExpertRow`` as JSON, with ``bins``."""
    examples: Sequence[Row]
    """``Example`` as JSON, with its expert."""
    effects: Mapping[int, Effects]

    def entries(self) -> Iterator[tuple[Row, list[Row], Effects]]:
        examples = {expert: list(rows) for expert, rows in groupby(self.examples, key=lambda row: int(row["expert"]))}
        for row in self.experts:
            yield row, examples.get(row["expert"], []), self.effects[row["expert"]]


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


def chunk_of(session: Session, exported: Exported, experts: Sequence[int]) -> Chunk:
    run, vocabulary = exported.run, exported.vocabulary
    edges = {expert: record.bins for expert, record in known(session, run, experts).items()}
    rows = rows_of(session, run, experts, vocabulary)
    order = [ExampleRecord.expert, ExampleRecord.bin, ExampleRecord.rank]
    conditions = [ExampleRecord.run_id == run.id, ExampleRecord.expert.in_(experts)]
    stored = stored_examples(session, conditions, order)
    measured = select(AblationRecord).where(AblationRecord.run_id == run.id, AblationRecord.expert.in_(experts))
    ablations = {record.expert: record for record in session.scalars(measured)}
    return Chunk(
        experts=[rows[expert].model_dump() | {"bins": edges[expert]} for expert in experts if expert in rows],
        examples=[{"expert": example.expert} | described(example, vocabulary) for example in stored],
        effects={
            expert: {
                side: [
                    (vocabulary.name(int(token)), change) for token, change in getattr(ablations.get(expert), side, ())
                ]
                for side in ("promoted", "suppressed")
            }
            for expert in experts
        },
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


# ---------------------------------------------------------------- Neuronpedia

UNMEASURED = (
    "neuron_alignment_indices",
    "neuron_alignment_values",
    "neuron_alignment_l1",
    "correlated_neurons_indices",
    "correlated_neurons_l1",
    "correlated_neurons_pearson",
    "correlated_features_indices",
    "correlated_features_l1",
    "correlated_features_pearson",
    "logits_hist_data_bar_heights",
    "logits_hist_data_bar_values",
    "decoder_weights_dist",
    "vector",
)
DIGITS = 3
"""Decimal places of every value, as in SAEDashboard."""
MAX_BYTES = 20_000
"""Largest size of an expert as JSON."""
TOKENS_BEFORE, TOKENS_AFTER = 31, 16
"""Tokens shown before and after the peak of an example."""
CREATOR = "clkht01d40000jv08hvalcvly"
"""Neuronpedia's user id in its own tools, which a local instance has from its first start."""


def write_batches(read: Iterable[Chunk], index: IndexRecord, head: Row, folder: Path) -> None:
    """Write the files of an export. ``head``: the fields that every batch has (model, layer and run)."""
    dead, written, explanations = list[int](), 0, folder / "explanations"
    for chunk in read:
        dead += [row["expert"] for row in chunk.experts if not row["active_tokens"]]
        active = [entry for entry in chunk.entries() if entry[0]["active_tokens"]]
        if active:
            batch = head | {"features": [_feature(index, *entry) for entry in active]}
            (folder / f"batch-{written}.json").write_text(_compact(batch), "utf-8")
            explanations.mkdir(exist_ok=True)
            lines = "".join(_compact(_explanation(head, row)) + "\n" for row, *_ in active if _label(row))
            (explanations / f"batch-{written}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
            written += 1
    skipped = head | {"layer": str(head["layer"]), "log_sparsity": 1, "skipped_indexes": dead}
    (folder / "skipped_indexes.json").write_text(_compact(skipped), "utf-8")


def _explanation(head: Row, row: Row) -> Row:
    source, label = f"{head['layer']}-{head['sae_set']}", _label(row)
    # The same label of the same expert has the same id, so that a second import replaces it.
    digest = blake2b(f"{head['model_id']}/{source}/{row['expert']}/{label}".encode(), digest_size=12).hexdigest()
    return {
        "id": f"c{digest}",
        "modelId": head["model_id"],
        "layer": source,
        "index": str(row["expert"]),
        "description": label,
        "authorId": CREATOR,
        "triggeredById": None,
        "typeName": None,
        "explanationModelName": None,
        "notes": None if row["label"] else _compact(row["automatic"]),
        "createdAt": utc_now().isoformat(),
    }


def _feature(index: IndexRecord, row: Row, examples: list[Row], effects: Effects) -> Row:
    bins = len(row["histogram"])
    width = row["histogram_high"] / max(1, bins)
    feature = {
        "feature_index": row["expert"],
        **{name: [] for name in UNMEASURED},
        "neg_str": [token for token, _ in effects["suppressed"]],
        "neg_values": [round(change, DIGITS) for _, change in effects["suppressed"]],
        "pos_str": [token for token, _ in effects["promoted"]],
        "pos_values": [round(change, DIGITS) for _, change in effects["promoted"]],
        "frac_nonzero": row["density"],
        "freq_hist_data_bar_values": [round((place + 0.5) * width, DIGITS) for place in range(bins)],
        "freq_hist_data_bar_heights": list(row["histogram"]),
        "n_prompts_total": index.tokens // index.context_length,
        "n_tokens_in_prompt": index.context_length,
        "dataset": without_folder(index.text),
        "activations": [],
    }
    used, fitting = _size(feature), []  # the examples that fit, top examples first, in their order
    for activation in (_activation(row, example) for example in examples):
        used += _size(activation) + 1
        if used > MAX_BYTES:
            break
        fitting.append(activation)
    return feature | {"activations": fitting}


def _label(row: Row) -> str | None:
    automatic = row["automatic"]
    return row["label"] or (automatic["label"] if automatic else None)


def _compact(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _size(content: object) -> int:
    return len(_compact(content).encode())


def _activation(row: Row, example: Row) -> dict[str, Any]:
    first = max(0, example["position"] - TOKENS_BEFORE)
    tokens = list(example["tokens"][first : example["position"] + TOKENS_AFTER + 1])
    values: list[float] = [0] * len(tokens)
    for position, activation, _ in example["active"]:
        if first <= position < first + len(tokens):
            values[position - first] = round(activation, DIGITS)
    low, high, share = -1.0, row["max_activation"], -1.0  # SAEDashboard's signs for the largest
    if example["bin"]:
        low, high, count = row["bins"][example["bin"] - 1]
        share = count / row["active_tokens"]
    return {
        "bin_min": round(low, DIGITS),
        "bin_max": round(high, DIGITS),
        "bin_contains": round(share, 2 * DIGITS),
        "tokens": tokens,
        "values": values,
        "qualifying_token_index": example["position"] - first,
    }


def export_run(
    session: Session,
    run: Run,
    folder: Path,
    format: TableFormat,
    callbacks: Callbacks,
    model_id: str | None = None,
    source_set: str | None = None,
) -> int:
    """Export every expert of an indexed run to a new or empty folder, atomically. Returns their number. ``model_id``
    and ``source_set`` are Neuronpedia's names of the language model and of the set of features. Defaults: the last part
    of the model's name here, and the run's name."""
    from mxd.backend.export.static_site.write import write_site  # imports PyTorch

    check_empty_folder(folder)
    record = find_run(session, run.name)
    exported = Exported(record, find_index(session, record), Vocabulary(run.tokenizer))
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(folder) as partial:
        read = chunks(session, exported, callbacks)
        if format == "site":
            write_site(session, exported, run, read, partial)
        elif format == "neuronpedia":
            named = model_id or record.language_model.rstrip("/").rpartition("/")[2]
            head = {"model_id": named, "layer": record.layer, "sae_set": source_set or record.name}
            write_batches(read, exported.index, head | {"sae_id_suffix": None}, partial)
        else:
            with tables(partial, format) as (add_experts, add_examples):
                for chunk in read:
                    add_experts(chunk.experts)
                    add_examples(chunk.examples)
    return exported.run.num_experts
