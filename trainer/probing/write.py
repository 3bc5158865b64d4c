"""Probing a run, and its result in the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import Engine, delete, select

from trainer.config import TextConfig
from trainer.errors import UserError
from trainer.evaluation.write import finite
from trainer.language_model import LanguageModel
from trainer.probing.config import ProbeConfig
from trainer.probing.examples import gather_examples
from trainer.probing.probe import probe_examples
from trainer.progress import Progress, ShouldStop
from trainer.run import Run
from trainer.store import ProbeRecord, RunRecord, utc_now, writing
from trainer.text import fingerprint


def probe(
    run: Run,
    config: ProbeConfig,
    language_model: LanguageModel,
    store: Engine,
    progress: Progress,
    should_stop: ShouldStop,
) -> dict[str, Any]:
    """Probe a run's experts, the MLP's neurons and a random gate; the result takes the place of the one before.

    Raises:
        UserError: the labels cannot be used, the store does not know the run, or somebody asked to stop.
    """
    layer = run.layer.to(language_model.device_of(run.config.layer))
    examples = gather_examples(config, language_model, run.config.layer, layer, progress, should_stop)
    progress(0, 1, "fitting the probes")
    kinds = probe_examples(examples, config)
    result: dict[str, Any] = finite(
        {
            "run": run.name,
            "labels": config.labels,
            "level": config.level,
            "examples": len(examples.labels_E),
            "classes": asdict(kinds["experts"])["classes"],
            "kinds": {kind: asdict(found) for kind, found in kinds.items()},
        }
    )
    _write(store, run, config, result)
    return result


def _write(store: Engine, run: Run, config: ProbeConfig, result: dict[str, Any]) -> None:
    digest = fingerprint(TextConfig(text=config.labels, column=config.text_column))
    with writing(store) as session:
        run_id = session.scalar(select(RunRecord.id).where(RunRecord.name == run.name))
        if run_id is None:
            raise UserError(f"The store does not know the run {run.name}; serve it, or name its store with --store.")
        session.execute(
            delete(ProbeRecord).where(
                ProbeRecord.run_id == run_id, ProbeRecord.fingerprint == digest, ProbeRecord.level == config.level
            )
        )
        session.add(
            ProbeRecord(
                run_id=run_id,
                labels=config.labels,
                fingerprint=digest,
                level=config.level,
                settings=config.model_dump(mode="json"),
                result=result,
                created_at=utc_now(),
            )
        )
