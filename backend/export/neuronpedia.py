"""Neuronpedia batches in the format of SAEDashboard (class ``NeuronpediaDashboardBatch``, sae-dashboard 0.6.8).

The folder has ``batch-N.json`` with 128 experts each. Dead experts are only listed in ``skipped_indexes.json``.

Differences from SAEDashboard: ``pos_str`` and ``neg_str`` are the tokens whose log-probability rises and falls most, in
nats, when the expert is added on its own examples (after ``mxd ablate``; empty before). They are not logits of a
decoder row, because an expert is a matrix. Neuron alignment and correlations are not measured and left empty.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mxd.backend.export.rows import Chunk, Exported, Row
from mxd.trainer.storage.database.tables import AblationRecord

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
)
DIGITS = 3
"""Decimal places of every value, as in SAEDashboard."""


class Batches:
    """Files of one export."""

    def __init__(self, folder: Path, exported: Exported, model_id: str, sae_set: str) -> None:
        self._folder = folder
        self._exported = exported
        self._head = {"model_id": model_id, "layer": exported.run.layer, "sae_set": sae_set}
        self._dead: list[int] = []
        self._written = 0

    def add(self, chunk: Chunk) -> None:
        """Write the active experts of a chunk as one batch."""
        examples = chunk.examples_by_expert()
        active = [row for row in chunk.experts if row["active_tokens"]]
        self._dead += [row["expert"] for row in chunk.experts if not row["active_tokens"]]
        features = [
            self._feature(row, examples.get(row["expert"], []), chunk.influences.get(row["expert"])) for row in active
        ]
        if features:
            self._write(f"batch-{self._written}.json", self._head | {"features": features})
            self._written += 1

    def end(self) -> None:
        """Write the ids of dead experts."""
        layer = str(self._head["layer"])
        skipped = {"log_sparsity": 1, "skipped_indexes": self._dead}
        self._write("skipped_indexes.json", self._head | {"layer": layer} | skipped)

    def _write(self, name: str, content: dict[str, Any]) -> None:
        (self._folder / name).write_text(json.dumps(content), "utf-8")

    def _feature(self, row: Row, examples: list[Row], influence: AblationRecord | None) -> dict[str, Any]:
        index, vocabulary = self._exported.index, self._exported.vocabulary
        bins = len(row["histogram"])
        width = row["histogram_high"] / max(1, bins)
        return {
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
            "dataset": Path(index.text).name if index.text.startswith(("/", "~", ".")) else index.text,
            "activations": [_activation(row, example) for example in examples],
        }


def _activation(row: Row, example: Row) -> dict[str, Any]:
    values = [0.0] * len(example["tokens"])
    for position, coefficient, _ in example["active"]:
        values[position] = round(coefficient, DIGITS)
    low, high, share = -1.0, row["max_activation"], -1.0  # SAEDashboard's signs for the largest
    if example["bin"]:
        low, high, tokens = row["bins"][example["bin"] - 1]
        share = tokens / row["active_tokens"]
    return {
        "bin_min": low,
        "bin_max": high,
        "bin_contains": share,
        "tokens": list(example["tokens"]),
        "values": values,
    }
