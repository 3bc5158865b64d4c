"""Neuronpedia batches in the format of SAEDashboard (class ``NeuronpediaDashboardBatch``, sae-dashboard 0.8.0).

    batch-N.json                    128 experts each, without the dead ones
    explanations/batch-N.jsonl.gz   their labels, as rows of Neuronpedia's table ``Explanation``
    skipped_indexes.json            ids of the dead experts

Neuronpedia's converter reads the batches; the explanations have its output format. See docs/interop.md.

Differences from SAEDashboard: ``pos_str`` and ``neg_str`` are the tokens whose log-probability rises and falls most, in
nats, when the expert is added on its own examples (after ``mxd ablate``; empty before). They are not logits of a
decoder row, because an expert is a matrix. Neuron alignment and correlations are not measured and left empty. Examples
are cut to a window around their peak, and an expert has at most ``MAX_BYTES`` bytes.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from sqlalchemy.orm import Session

from mxd.backend.export.static_site.write import write_site
from mxd.backend.export.tables import Chunk, Exported, Row, chunks, open_run, tables
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.runs import find_run
from mxd.trainer.storage.database.tables import AblationRecord, utc_now
from mxd.trainer.storage.run import Run, check_empty_folder, without_folder
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import atomic_directory

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
_COMPACT = (",", ":")


class Batches:
    """Files of one export."""

    def __init__(self, folder: Path, exported: Exported, model_id: str, sae_set: str) -> None:
        self._folder = folder
        self._exported = exported
        self._head = {"model_id": model_id, "layer": exported.run.layer, "sae_set": sae_set, "sae_id_suffix": None}
        self._dead: list[int] = []
        self._written = 0

    def add(self, chunk: Chunk) -> None:
        """Write the active experts of a chunk as one batch."""
        active = [row for row in chunk.experts if row["active_tokens"]]
        self._dead += [row["expert"] for row in chunk.experts if not row["active_tokens"]]
        features = [self._feature(*entry) for entry in chunk.entries() if entry[0]["active_tokens"]]
        if features:
            self._write(f"batch-{self._written}.json", self._head | {"features": features})
            folder = self._folder / "explanations"
            folder.mkdir(exist_ok=True)
            lines = "".join(_json(self._explanation(row)) + "\n" for row in active if _label(row))
            (folder / f"batch-{self._written}.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
            self._written += 1

    def end(self) -> None:
        """Write the ids of dead experts."""
        layer = str(self._head["layer"])
        skipped = {"log_sparsity": 1, "skipped_indexes": self._dead}
        self._write("skipped_indexes.json", self._head | {"layer": layer} | skipped)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self._folder / name).write_text(_json(content), "utf-8")

    def _explanation(self, row: Row) -> dict[str, Any]:
        head, label = self._head, _label(row)
        source = f"{head['layer']}-{head['sae_set']}"
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
            "notes": None if row["label"] else _json(row["automatic"]),
            "createdAt": utc_now().isoformat(),
        }

    def _feature(self, row: Row, examples: list[Row], influence: AblationRecord | None) -> dict[str, Any]:
        index, vocabulary = self._exported.index, self._exported.vocabulary
        bins = len(row["histogram"])
        width = row["histogram_high"] / max(1, bins)
        feature = {
            "feature_index": row["expert"],
            **{name: [] for name in UNMEASURED},
            "neg_str": vocabulary.names(int(token) for token, _ in influence.suppressed) if influence else [],
            "neg_values": [round(change, DIGITS) for _, change in influence.suppressed] if influence else [],
            "pos_str": vocabulary.names(int(token) for token, _ in influence.promoted) if influence else [],
            "pos_values": [round(change, DIGITS) for _, change in influence.promoted] if influence else [],
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


def _json(content: object) -> str:
    return json.dumps(content, ensure_ascii=False, separators=_COMPACT)


def _size(content: object) -> int:
    return len(_json(content).encode())


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


TableFormat = Literal["json", "csv", "parquet", "neuronpedia", "site"]


@dataclass(frozen=True)
class Target:
    """Destination and format of an export."""

    folder: Path
    """A new or empty folder."""
    format: TableFormat
    model_id: str | None = None
    """Neuronpedia's name of the language model. Default: the last part of its name here."""
    source_set: str | None = None
    """Neuronpedia's name of the set of features. Default: the run's name."""


def export_run(session: Session, run: Run, target: Target, callbacks: Callbacks) -> int:
    """Export every expert of an indexed run. Returns their number. Raises UserError if the folder is not empty, or the
    export was cancelled; no files are left, NoIndexError if the run has no index."""
    check_empty_folder(target.folder)
    exported = open_run(session, find_run(session, run.name), Vocabulary(run.tokenizer))
    target.folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_directory(target.folder) as partial:
        read = chunks(session, exported, callbacks)
        if target.format == "site":
            write_site(session, exported, run, read, partial)
        elif target.format == "neuronpedia":
            named = target.model_id or exported.run.language_model.rstrip("/").rpartition("/")[2]
            batches = Batches(partial, exported, named, target.source_set or exported.run.name)
            for chunk in read:
                batches.add(chunk)
            batches.end()
        else:
            with tables(partial, target.format) as (add_experts, add_examples):
                for chunk in read:
                    add_experts(chunk.experts)
                    add_examples(chunk.examples)
    return exported.run.num_experts
