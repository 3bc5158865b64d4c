"""Probe a run and store the result."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, delete

from mxd.trainer.config import TextConfig
from mxd.trainer.config.analysis import ProbeConfig
from mxd.trainer.data.sequences import fingerprint
from mxd.trainer.evaluation.probing.examples import collect_examples
from mxd.trainer.evaluation.probing.probe import probe_examples
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import ProbeRecord, utc_now
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import finite


def probe(
    run: Run, config: ProbeConfig, language_model: LanguageModel, database: Engine, callbacks: Callbacks
) -> dict[str, Any]:
    """Probe a run's experts, the MLP's neurons and a random gate, and replace the stored result.

    Raises:
        NotFoundError: there is no such file of labelled texts, or the run is not in the database.
        UserError: the labelled texts cannot be used.
        CancelledError: the task was cancelled.
    """
    sparse_layer = run.layer.to(language_model.device_of(run.config.layer))
    start_token = run.config.text.start_token
    examples = collect_examples(config, language_model, run.config.layer, sparse_layer, callbacks, start_token)
    callbacks.on_progress(0, 1, "training the probes")
    kinds = probe_examples(examples, config)
    result: dict[str, Any] = finite(
        {
            "run": run.name,
            "labels": config.labels,
            "level": config.level,
            "examples": len(examples.labels_E),
            "classes": asdict(kinds["experts"])["classes"],
            "kinds": {kind: asdict(probes) for kind, probes in kinds.items()},
        }
    )
    _write(database, run, config, result)
    return result


def _write(database: Engine, run: Run, config: ProbeConfig, result: dict[str, Any]) -> None:
    text = fingerprint(TextConfig(dataset=config.labels, column=config.text_column))
    table = ProbeRecord
    with writing(database) as session:
        run_id = find_record(session, run.name).id
        session.execute(
            delete(table).where(table.run_id == run_id, table.fingerprint == text, table.level == config.level)
        )
        session.add(
            table(
                run_id=run_id,
                labels=config.labels,
                fingerprint=text,
                level=config.level,
                settings=config.model_dump(mode="json"),
                result=result,
                created_at=utc_now(),
            )
        )
