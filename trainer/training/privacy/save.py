"""Save the new runs to disk and the database, and their measurements as an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from mxd.trainer.config import TrainConfig
from mxd.trainer.config.privacy import SUBJECT, ProtectConfig
from mxd.trainer.errors import UserError
from mxd.trainer.layers.base import SparseLayer
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import EvaluationRecord, RunRecord, utc_now
from mxd.trainer.storage.portable import copy_tokenizer
from mxd.trainer.storage.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from mxd.trainer.storage.run_records import register_run
from mxd.trainer.storage.run_sets import weights_digest
from mxd.trainer.training.privacy.protect import ProtectionOutcome
from mxd.trainer.utils.files import atomic_directory, atomic_write, finite


def check_new_runs(names: Sequence[str], data: Path, database: Engine) -> None:
    """Check that no run has one of these names.

    Raises:
        UserError: a run exists.
    """
    with Session(database) as session:
        known = set(session.scalars(select(RunRecord.name).where(RunRecord.name.in_(names))))
    for name in names:
        if name in known or (runs_folder(data) / name).exists():
            raise UserError(f"Run '{name}' already exists. Choose another --name, or remove it with mxd remove {name}.")


def new_run_config(run: Run, name: str, runs: Sequence[Run], config: ProtectConfig) -> TrainConfig:
    """Config of a new run."""
    others = tuple(other.name for other in runs if other is not run)
    changed = {
        "name": name,
        "language_model": run.language_model_source,
        "num_experts": run.layer_config.num_experts,
        "parents": (run.name, *others),
        "privacy": config.model_dump(),
    }
    return type(run.config).model_validate(run.config.model_dump() | changed)


def write_outcome(
    runs: Sequence[Run], outcome: ProtectionOutcome, config: ProtectConfig, text: str, data: Path, database: Engine
) -> dict[str, Any]:
    """Write the new runs, each atomically, and save their measurements. Returns the measurements as stored.

    Args:
        runs: the parent runs.
        text: name of the retain set.

    Raises:
        UserError: a new run exists by now, or the disk is full.
    """
    names = outcome.result.runs
    check_new_runs(names, data, database)
    new_runs = [
        _write_run(run, new_run_config(run, name, runs, config), outcome.model.layers[run.config.layer], data)
        for run, name in zip(runs, names, strict=True)
    ]
    for run in new_runs:
        register_run(run, database)
    return _save_evaluation(database, new_runs, outcome, config, text)


def _write_run(parent: Run, config: TrainConfig, layer: SparseLayer, data: Path) -> Run:
    target = runs_folder(data) / config.name
    with atomic_directory(target) as folder:
        layer.cpu().save(folder)
        copy_tokenizer(parent.folder / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
        atomic_write(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")
    return Run(target, config)


def _save_evaluation(
    database: Engine, runs: Sequence[Run], outcome: ProtectionOutcome, config: ProtectConfig, text: str
) -> dict[str, Any]:
    result: dict[str, Any] = finite(asdict(outcome.result))
    weights = weights_digest(runs)
    with writing(database) as session:
        run_id = session.scalar(select(RunRecord.id).where(RunRecord.name == runs[0].name))
        session.add(
            EvaluationRecord(
                run_id=run_id,
                subject=SUBJECT + " + ".join(run.name for run in runs),
                text=text,
                fingerprint=weights,  # a fingerprint of the passages would allow guessing them
                settings=config.model_dump(mode="json"),
                weights=weights,
                result=result,
                sequences=outcome.increase_S.astype("<f4").tobytes(),
                created_at=utc_now(),
            )
        )
    return result
