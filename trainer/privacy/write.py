"""New runs on disk and in the store, and what was measured of them as an evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from trainer.config import TrainConfig
from trainer.errors import UserError
from trainer.evaluation.write import finite, weights_digest
from trainer.files import whole_folder, write_whole
from trainer.layers.sparse import SparseLayer
from trainer.privacy.protect import Outcome
from trainer.protect_config import SUBJECT, ProtectConfig
from trainer.registration import register_run
from trainer.run import RUN_FILE, TOKENIZER_FOLDER, Run, runs_folder
from trainer.sharing import copy_tokenizer
from trainer.store import EvaluationRecord, RunRecord, utc_now, writing


def refuse_known(names: Sequence[str], data: Path, store: Engine) -> None:
    """See that new runs are new, and may be called so.

    Raises:
        UserError: one is there already, or cannot be the name of a run.
    """
    with Session(store) as session:
        known = set(session.scalars(select(RunRecord.name).where(RunRecord.name.in_(names))))
    for name in names:
        if name in known or (runs_folder(data) / name).exists():
            raise UserError(f"The run {name} exists; choose another --name, or remove it with mxd remove {name}.")


def config_of(run: Run, name: str, runs: Sequence[Run], config: ProtectConfig) -> TrainConfig:
    """The settings of a new run."""
    others = tuple(other.name for other in runs if other is not run)
    changed = {
        "name": name,
        "language_model": run.language_model_source,
        "num_experts": run.layer_config.num_experts,
        "began_as": (run.name, *others),
        "protected": config.model_dump(),
    }
    return TrainConfig.model_validate(run.config.model_dump() | changed)


def write_outcome(
    runs: Sequence[Run], outcome: Outcome, config: ProtectConfig, text: str, data: Path, store: Engine
) -> dict[str, Any]:
    """Write the new runs, each all at once, and enter what was measured; returns that as it is stored.

    Args:
        runs: those that the new ones began as.
        text: what the other text is called.

    Raises:
        UserError: one of them has come to exist meanwhile, or there is no room.
    """
    names = outcome.result.runs
    refuse_known(names, data, store)
    made = [
        _write_run(run, config_of(run, name, runs, config), outcome.placed.layers[run.config.layer], data)
        for run, name in zip(runs, names, strict=True)
    ]
    for run in made:
        register_run(run, store)
    return _enter(store, made, outcome, config, text)


def _write_run(parent: Run, config: TrainConfig, layer: SparseLayer, data: Path) -> Run:
    target = runs_folder(data) / config.name
    with whole_folder(target) as folder:
        layer.cpu().save(folder)
        copy_tokenizer(parent.folder / TOKENIZER_FOLDER, folder / TOKENIZER_FOLDER)
        write_whole(folder / RUN_FILE, config.model_dump_json(indent=1) + "\n")
    return Run(target, config)


def _enter(store: Engine, runs: Sequence[Run], outcome: Outcome, config: ProtectConfig, text: str) -> dict[str, Any]:
    result: dict[str, Any] = finite(asdict(outcome.result))
    weights = weights_digest(runs)
    with writing(store) as session:
        run_id = session.scalar(select(RunRecord.id).where(RunRecord.name == runs[0].name))
        session.add(
            EvaluationRecord(
                run_id=run_id,
                subject=SUBJECT + " + ".join(run.name for run in runs),
                text=text,
                fingerprint=weights,  # one of the passages would let people try out what they were
                settings=config.model_dump(mode="json"),
                weights=weights,
                result=result,
                sequences=outcome.added_S.astype("<f4").tobytes(),
                created_at=utc_now(),
            )
        )
    return result
