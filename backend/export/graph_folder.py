"""A circuit as a folder for other programs: the graph, and the examples of its experts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.errors import NoIndexError, RunNotFoundError
from mxd.backend.export.attribution_graph import LOCAL_SCAN, GraphContext, attribution_graph, write_graph
from mxd.backend.export.feature_files import write_features
from mxd.backend.export.tables import open_run
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.automatic_labels import clear_labels
from mxd.backend.queries.runs import find_run
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.storage.run import Run


def export_circuit(
    session: Session,
    runs: Sequence[Run],
    circuit: Circuit,
    check: CircuitCheck | None,
    folder: Path,
    model_id: str | None = None,
) -> Path:
    """Write a circuit, and feature files for the experts of indexed runs. Returns the path of the graph.

    A run that the database does not know has no labels and no feature files.

    Args:
        check: its measured effects, if any.
        folder: new folder, or one with other graphs, which are kept.
        model_id: Neuronpedia's id of the language model.
    """
    labels = {}
    for run in runs:
        experts = {expert.expert for expert in circuit.experts if expert.run == run.name}
        try:
            record = find_run(session, run.name)
            labels[run.name] = _labels(session, record, experts)
            exported = open_run(session, record, Vocabulary(run.tokenizer))
        except (RunNotFoundError, NoIndexError):
            continue
        write_features(session, exported, experts, folder)
    return write_graph(attribution_graph(circuit, GraphContext(labels, check, model_id or LOCAL_SCAN)), folder)


def _labels(session: Session, run: RunRecord, experts: set[int]) -> dict[int, str]:
    """Labels of experts. User labels take precedence over automatic ones."""
    return clear_labels(session, run, experts) | notes.labels_of(session, run.name, experts)
