"""Build the demo's files from trained runs: layers in half precision, without local paths.

    python scripts/sample_runs.py runs data/demo DATA NAME…
    python scripts/sample_runs.py evaluations data/demo DATABASE_URL
    python scripts/sample_runs.py ablations data/demo DATABASE_URL NAME…

Before ``evaluations``, run ``mxd evaluate --data data/demo --database DATABASE_URL`` and ``mxd probe``, so that
the shipped files are measured. Before ``ablations``, run ``mxd ablate`` on the database of ``mxd demo``.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from mxd.backend.database.engine import opened
from mxd.backend.export.bundles.pack import portable_row
from mxd.backend.export.sample_data import ABLATIONS_FILE, EVALUATIONS_FILE, MEASURED, Sample, index_settings
from mxd.trainer.layers.base import save_tensors
from mxd.trainer.layers.files import WEIGHTS_FILE
from mxd.trainer.storage.database.rows import EXCLUDED_COLUMNS, as_json, rows_of_run
from mxd.trainer.storage.database.tables import AblationRecord, IndexRecord, MeasurementRecord, RunRecord
from mxd.trainer.storage.run import Run, runs_folder
from mxd.trainer.storage.run_sets import weights_digest

LANGUAGE_MODEL = "language-model"
"""Name of its folder in the demo."""


def copy_runs(sample: Path, data: Path, names: list[str]) -> None:
    """Copy runs into the demo, with weights in float16."""
    for name in names:
        run = Run.load(name, data)
        folder = run.save_pretrained(runs_folder(sample) / name, LANGUAGE_MODEL)
        (folder / "README.md").unlink()  # the card is for the hub
        weights = {key: value.to(torch.float16).contiguous() for key, value in run.layer.state_dict().items()}
        save_tensors(weights, folder / WEIGHTS_FILE)
        print(f"{name}: {(folder / WEIGHTS_FILE).stat().st_size / 1e6:.1f} MB")


def write_evaluations(sample: Path, database_url: str) -> None:
    """Write the evaluations and probes of the demo's runs."""
    taken: dict[str, list[dict[str, Any]]] = {}
    with opened(database_url) as database, Session(database) as session:
        for record, key in MEASURED.items():
            table: Table = record.__table__  # type: ignore[assignment]
            query = select(record, RunRecord.name).join(RunRecord, RunRecord.id == record.run_id)
            taken[table.name] = [
                portable_row(table.name, as_json(table, vars(row), EXCLUDED_COLUMNS)) | {"run": run}
                for row, run in session.execute(query.order_by(*(table.c[column] for column in key)))
            ]
            print(f"{len(taken[table.name])} {table.name}")
    (sample / EVALUATIONS_FILE).write_text(json.dumps(taken, ensure_ascii=False) + "\n", "utf-8")


def write_ablations(sample: Path, database_url: str, names: list[str]) -> None:
    """Write the ablation effects of the experts, rounded to six digits."""
    opened_sample, taken = Sample.open(sample), {}
    with opened(database_url) as database, Session(database) as session:
        for name in names:
            record = session.scalars(select(RunRecord).where(RunRecord.name == name)).one()
            rows = list(rows_of_run(session, record, AblationRecord.__table__))  # type: ignore[arg-type]
            measured = session.get(MeasurementRecord, (record.id, "ablate"))
            taken[name] = {
                "weights": weights_digest([Run.load(name, sample)]),
                "index": index_settings(opened_sample.index),
                "indexed_tokens": session.get_one(IndexRecord, record.id).tokens,
                "settings": {} if measured is None else measured.settings,
                "rows": _short(rows),
            }
            print(f"{name}: {len(rows):,} experts")
    packed = gzip.compress(json.dumps(taken, ensure_ascii=False).encode(), mtime=0)
    (sample / ABLATIONS_FILE).write_bytes(packed)
    print(f"{len(packed) / 1e6:.2f} MB")


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Build one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("runs", "evaluations", "ablate"))
    parser.add_argument("sample", type=Path)
    parser.add_argument("source", help="data folder of the runs, or URL of the database")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.what == "runs":
        copy_runs(given.sample, Path(given.source), given.names)
    elif given.what == "evaluations":
        write_evaluations(given.sample, given.source)
    else:
        write_ablations(given.sample, given.source, given.names)


if __name__ == "__main__":
    main()
