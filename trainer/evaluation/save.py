"""Evaluations in the database."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, and_, delete, select
from sqlalchemy.orm import Session

from mxd.trainer.config import EvaluateConfig
from mxd.trainer.evaluation.evaluate import Measurement
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import EvaluationRecord, utc_now
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.files import finite


def load_evaluation(
    database: Engine, subject: str, fingerprint: str, config: EvaluateConfig, weights: str
) -> dict[str, Any] | None:
    """Return the stored result with the same subject, text, settings and weights, or None if there is none."""
    with Session(database) as session:
        record = session.scalar(select(EvaluationRecord).where(_same_evaluation(subject, fingerprint)))
        if record is None or record.weights != weights or EvaluateConfig.model_validate(record.settings) != config:
            return None
        result: dict[str, Any] = record.result
        return None if _is_older(result, config) else result


def _is_older(result: dict[str, Any], config: EvaluateConfig) -> bool:
    """Return whether a result of one run was stored before the newest measures existed."""
    lacks_jacobian = config.jacobian_tokens > 0 and result.get("jacobian") is None
    return "routing_share" in result and ("decoder_share" not in result or lacks_jacobian)


def _same_evaluation(subject: str, fingerprint: str) -> Any:
    return and_(EvaluationRecord.subject == subject, EvaluationRecord.fingerprint == fingerprint)


def write_evaluation(
    database: Engine, measurement: Measurement, first_run: str, config: EvaluateConfig, fingerprint: str, weights: str
) -> dict[str, Any]:
    """Store a result, replacing the previous one of the same subject on the same text.

    Args:
        first_run: run under which the result is stored.
        fingerprint: fingerprint of the text.
        weights: digest of the runs' weights.

    Returns:
        The result as stored.

    Raises:
        NotFoundError: the run is not in the database.
    """
    result: dict[str, Any] = finite(asdict(measurement.result))
    with writing(database) as session:
        run_id = find_record(session, first_run).id
        session.execute(delete(EvaluationRecord).where(_same_evaluation(measurement.subject, fingerprint)))
        session.add(
            EvaluationRecord(
                run_id=run_id,
                subject=measurement.subject,
                text=config.text.dataset,
                fingerprint=fingerprint,
                settings=config.model_dump(mode="json"),
                weights=weights,
                result=result,
                sequences=measurement.loss_increase_S.astype("<f4").tobytes(),
                created_at=utc_now(),
            )
        )
    return result
