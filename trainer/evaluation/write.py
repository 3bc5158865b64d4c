"""Evaluations in the store: what is there already, and what comes in."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import blake2b
from typing import Any

from sqlalchemy import Engine, delete, select
from sqlalchemy.orm import Session

from trainer.config import EvaluateConfig
from trainer.errors import UserError
from trainer.evaluation.evaluate import Measured
from trainer.layers.saved import WEIGHTS_FILE
from trainer.run import Run
from trainer.store import EvaluationRecord, RunRecord, utc_now, writing

_BYTES = 2**22


def weights_digest(runs: Iterable[Run]) -> str:
    """Tells whether weights have changed since they were measured."""
    digest = blake2b(digest_size=16)
    for run in runs:
        with (run.weights_folder / WEIGHTS_FILE).open("rb") as file:
            while part := file.read(_BYTES):
                digest.update(part)
    return digest.hexdigest()


def stored(
    store: Engine, subject: str, fingerprint: str, config: EvaluateConfig, weights: str
) -> dict[str, Any] | None:
    """The result of this very measurement, where it was made before."""
    with Session(store) as session:
        record = session.scalar(_of(subject, fingerprint))
        if record is None or record.weights != weights or EvaluateConfig.model_validate(record.settings) != config:
            return None
        found: dict[str, Any] = record.result
        return found


def _of(subject: str, fingerprint: str) -> Any:
    return select(EvaluationRecord).where(
        EvaluationRecord.subject == subject, EvaluationRecord.fingerprint == fingerprint
    )


def write_evaluation(
    store: Engine, measured: Measured, first_run: str, config: EvaluateConfig, fingerprint: str, weights: str
) -> dict[str, Any]:
    """Put a measurement into the place of the one before; returns it as it is stored.

    Raises:
        UserError: the store does not know the run.
    """
    result: dict[str, Any] = finite(asdict(measured.result))
    subject = measured.subject
    with writing(store) as session:
        run_id = session.scalar(select(RunRecord.id).where(RunRecord.name == first_run))
        if run_id is None:
            raise UserError(f"The store does not know the run {first_run}; serve it, or name its store with --store.")
        session.execute(
            delete(EvaluationRecord).where(
                EvaluationRecord.subject == subject, EvaluationRecord.fingerprint == fingerprint
            )
        )
        session.add(
            EvaluationRecord(
                run_id=run_id,
                subject=subject,
                text=config.text.text,
                fingerprint=fingerprint,
                settings=config.model_dump(mode="json"),
                weights=weights,
                result=result,
                sequences=measured.added_S.astype("<f4").tobytes(),
                created_at=utc_now(),
            )
        )
    return result


def finite(value: Any) -> Any:
    """JSON has no NaN: what could not be measured is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value
