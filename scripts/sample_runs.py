"""How fitted runs came into the sample: layers in half precision, nothing that names a folder of a machine.

python scripts/sample_runs.py runs data/demo FITTED_DATA NAME…
python scripts/sample_runs.py evaluations data/demo STORE_URL
python scripts/sample_runs.py influence data/demo STORE_URL NAME…

Before the second, ``mxd evaluate --data data/demo --store STORE_URL`` measures what is shipped, not what it was made
of, and so does ``mxd probe``; before the third, so does ``mxd influence``, in the store that ``mxd demo`` has made.
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

from backend.bundles.pack import portable_row
from backend.database import opened
from backend.sample import EVALUATIONS_FILE, INFLUENCE_FILE, MEASURED, Sample, index_settings
from trainer.evaluation.write import weights_digest
from trainer.excerpts import LEFT_OUT, rows_of_run
from trainer.layers.saved import WEIGHTS_FILE
from trainer.layers.sparse import save_tensors
from trainer.rows_as_json import as_json
from trainer.run import Run, runs_folder
from trainer.store import IndexRecord, InfluenceRecord, MeasurementRecord, RunRecord

LANGUAGE_MODEL = "language-model"
"""Its folder in the sample."""


def take_runs(sample: Path, data: Path, names: list[str]) -> None:
    """Copy runs into the sample, their weights in float16."""
    for name in names:
        run = Run.load(name, data)
        folder = run.save_pretrained(runs_folder(sample) / name, LANGUAGE_MODEL)
        (folder / "README.md").unlink()  # the card is for the hub
        weights = {key: value.to(torch.float16).contiguous() for key, value in run.layer.state_dict().items()}
        save_tensors(weights, folder / WEIGHTS_FILE)
        print(f"{name}: {(folder / WEIGHTS_FILE).stat().st_size / 1e6:.1f} MB")


def take_evaluations(sample: Path, store_url: str) -> None:
    """Write what was measured of the sample's runs beside them."""
    taken: dict[str, list[dict[str, Any]]] = {}
    with opened(store_url) as store, Session(store) as session:
        for record, key in MEASURED.items():
            table: Table = record.__table__  # type: ignore[assignment]
            wanted = select(record, RunRecord.name).join(RunRecord, RunRecord.id == record.run_id)
            taken[table.name] = [
                portable_row(table.name, as_json(table, vars(row), LEFT_OUT)) | {"run": run}
                for row, run in session.execute(wanted.order_by(*(table.c[column] for column in key)))
            ]
            print(f"{len(taken[table.name])} {table.name}")
    (sample / EVALUATIONS_FILE).write_text(json.dumps(taken, ensure_ascii=False) + "\n", "utf-8")


def take_influence(sample: Path, store_url: str, names: list[str]) -> None:
    """Write what was measured of the experts of runs beside them, to six digits."""
    opened_sample, taken = Sample.open(sample), {}
    with opened(store_url) as store, Session(store) as session:
        for name in names:
            record = session.scalars(select(RunRecord).where(RunRecord.name == name)).one()
            rows = list(rows_of_run(session, record, InfluenceRecord.__table__))  # type: ignore[arg-type]
            measured = session.get(MeasurementRecord, (record.id, "influence"))
            taken[name] = {
                "weights": weights_digest([Run.load(name, sample)]),
                "index": index_settings(opened_sample.index),
                "indexed_tokens": session.get_one(IndexRecord, record.id).tokens,
                "settings": {} if measured is None else measured.settings,
                "rows": _short(rows),
            }
            print(f"{name}: {len(rows):,} experts")
    packed = gzip.compress(json.dumps(taken, ensure_ascii=False).encode(), mtime=0)
    (sample / INFLUENCE_FILE).write_bytes(packed)
    print(f"{len(packed) / 1e6:.2f} MB")


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [_short(item) for item in value]
    return {key: _short(item) for key, item in value.items()} if isinstance(value, dict) else value


def main() -> None:
    """Do one of the three."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("runs", "evaluations", "influence"))
    parser.add_argument("sample", type=Path)
    parser.add_argument("source", help="data folder of the runs, or URL of the store")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.what == "runs":
        take_runs(given.sample, Path(given.source), given.names)
    elif given.what == "evaluations":
        take_evaluations(given.sample, given.source)
    else:
        take_influence(given.sample, given.source, given.names)


if __name__ == "__main__":
    main()
