"""How fitted runs came into the sample: layers in half precision, nothing that names a folder of a machine.

python scripts/sample_runs.py runs data/demo FITTED_DATA NAME…
python scripts/sample_runs.py evaluations data/demo STORE_URL

Between the two, ``mxd evaluate --data data/demo --store STORE_URL`` measures what is shipped, not what it was made of.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.bundles.pack import portable_row
from backend.database import opened
from backend.sample import EVALUATIONS_FILE
from trainer.excerpts import LEFT_OUT
from trainer.layers.saved import WEIGHTS_FILE
from trainer.layers.sparse import save_tensors
from trainer.rows_as_json import as_json
from trainer.run import Run, runs_folder
from trainer.store import EvaluationRecord, RunRecord

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
    table = EvaluationRecord.__tablename__
    with opened(store_url) as store, Session(store) as session:
        wanted = select(EvaluationRecord, RunRecord.name).join(RunRecord, RunRecord.id == EvaluationRecord.run_id)
        rows = [
            portable_row(table, as_json(EvaluationRecord.__table__, vars(record), LEFT_OUT)) | {"run": run}  # type: ignore[arg-type]
            for record, run in session.execute(wanted.order_by(EvaluationRecord.subject))
        ]
    (sample / EVALUATIONS_FILE).write_text(json.dumps({"evaluations": rows}, ensure_ascii=False) + "\n", "utf-8")
    print(f"{len(rows)} evaluations")


def main() -> None:
    """Do one of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("runs", "evaluations"))
    parser.add_argument("sample", type=Path)
    parser.add_argument("source", help="data folder of the runs, or URL of the store")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    if given.what == "runs":
        take_runs(given.sample, Path(given.source), given.names)
    else:
        take_evaluations(given.sample, given.source)


if __name__ == "__main__":
    main()
