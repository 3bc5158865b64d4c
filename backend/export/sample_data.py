"""The demo: a data folder whose runs come with annotations and measurements for the database."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Table, select
from sqlalchemy.orm import Session

from mxd.backend.database import annotations as notes
from mxd.backend.database import steering_sessions as sessions
from mxd.backend.schemas import SteeringRequest
from mxd.trainer.config import AblationConfig, IndexConfig
from mxd.trainer.data.documents import fingerprint
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.rows import EXCLUDED_COLUMNS, from_json, insert_checked
from mxd.trainer.storage.database.tables import (
    AblationRecord,
    AutomaticLabelRecord,
    EvaluationRecord,
    ExpertRecord,
    IndexRecord,
    ProbeRecord,
    RunRecord,
    utc_now,
)
from mxd.trainer.storage.run import Run, run_names
from mxd.trainer.storage.run_records import register_run

INDEX_FILE = "index.json"
"""Index settings, with the text's path relative to the folder; ``first`` names the run to show first."""
LABELS_FILE = "labels.json"
"""Optional: run -> expert -> label."""
SESSIONS_FILE = "sessions.json"
"""Optional: run -> name -> steering session, in display order."""
EVALUATIONS_FILE = "evaluations.json"
"""Optional: rows of evaluations and probes as JSON, each with its ``run``."""
ABLATIONS_FILE = "ablations.json.gz"
"""Optional: run -> ``weights`` (digest), ``index`` (settings of the index whose examples were read), its
``indexed_tokens``, ``settings`` of the measurement, and ``rows`` as JSON."""

MEASURED: dict[type[EvaluationRecord | ProbeRecord], tuple[str, ...]] = {
    EvaluationRecord: ("subject", "fingerprint"),
    ProbeRecord: ("run_id", "fingerprint", "level"),
}
"""Tables in ``EVALUATIONS_FILE``: the record, and the columns that identify a row."""


@dataclass(frozen=True)
class Sample:
    """A data folder with an ``INDEX_FILE``."""

    folder: Path
    first: str
    """Name of the run that is shown first."""
    index: IndexConfig
    """Index settings, with the path of the text."""

    @classmethod
    def open(cls, folder: Path) -> Sample:
        """Open the demo in a folder.

        Raises:
            NotFoundError: there is none, or it has no run.
        """
        values = _read(folder / INDEX_FILE)
        names = run_names(folder)
        if not values or not names:
            raise NotFoundError(
                f"The demo is missing from {folder}. Restore it with git checkout, or train a run of your own."
            )
        first = values.pop("first", names[0])
        config = IndexConfig.model_validate(values)
        text = config.text.model_copy(update={"dataset": str(folder / config.text.dataset)})
        return cls(folder, first, config.model_copy(update={"text": text}))

    @cached_property
    def runs(self) -> list[Run]:
        """All runs, in display order."""
        names = sorted(run_names(self.folder), key=lambda name: (name != self.first, name))
        return [Run.load(name, self.folder) for name in names]

    def enter(self, database: Engine) -> None:
        """Enter the runs, in their order, and their measurements into a database.

        Raises:
            UserError: a run or a measurement is damaged.
        """
        with Session(database) as session:
            known = set(session.scalars(select(RunRecord.name)))
        new = [run for run in self.runs if run.name not in known]
        for run in new:
            register_run(run, database)
        with writing(database) as session:
            self._put_in_order(session, new)
            self._enter_measured(session)

    def _put_in_order(self, session: Session, new: Sequence[Run]) -> None:
        """File times are those of the checkout and define no order, so use consecutive ones."""
        now = utc_now()
        for place, run in enumerate(new):
            record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
            record.started_at = now - timedelta(seconds=place)

    def _enter_measured(self, session: Session) -> None:
        ids = {record.name: record.id for record in session.scalars(select(RunRecord))}
        measured = _read(self.folder / EVALUATIONS_FILE)
        for record, key in MEASURED.items():
            table: Table = record.__table__  # type: ignore[assignment]
            known = {tuple(row) for row in session.execute(select(*(table.c[column] for column in key)))}
            for row in measured.get(table.name, []):
                run = row.pop("run")
                values = from_json(table, row, EXCLUDED_COLUMNS) | {"run_id": ids.get(run)}
                if run in ids and tuple(values[column] for column in key) not in known:
                    insert_checked(session, table, [values])

    def enter_written(self, run: Run, database: Engine) -> None:
        """Enter labels and sessions of an indexed run, once, so that later changes by users are kept."""
        with writing(database) as session:
            if notes.count_of(session, run.name) or sessions.sessions_of(session, run.name):
                return
            for expert, label in _read(self.folder / LABELS_FILE).get(run.name, {}).items():
                notes.set_label(session, run.name, int(expert), label)
            # The newest is listed first.
            for name, values in reversed(_read(self.folder / SESSIONS_FILE).get(run.name, {}).items()):
                steering = SteeringRequest.model_validate(values)
                units = sessions.json_units(self._units(run, steering))
                sessions.save_session(session, run.name, name, steering.model_dump(mode="json"), units)

    def enter_ablations(self, run: Run, database: Engine) -> None:
        """Enter the ablation effects of an indexed run, if they belong to these weights and index settings.

        Measurements made by users are kept.

        Raises:
            UserError: the measurements are damaged.
        """
        table: Table = AblationRecord.__table__  # type: ignore[assignment]
        if _has(AblationRecord.run_id, run, database):
            return
        shipped = _read_packed(self.folder / ABLATIONS_FILE).get(run.name)
        if shipped is None or shipped["index"] != index_settings(self.index) or not _is_of(run, shipped["weights"]):
            return
        if not self._has_index_of(run, shipped["indexed_tokens"], database):
            return
        from mxd.trainer.analysis.ablation.summary import write_ablations

        values = [from_json(table, row, EXCLUDED_COLUMNS) for row in shipped["rows"]]
        with writing(database) as session:
            run_id = session.scalars(select(RunRecord.id).where(RunRecord.name == run.name)).one()
            active = select(ExpertRecord.expert).where(ExpertRecord.run_id == run_id, ExpertRecord.active_tokens > 0)
            known = set(session.scalars(active))
            shown = [row for row in values if row["expert"] in known]
            write_ablations(session, run_id, shown, AblationConfig.model_validate(shipped.get("settings", {})))

    def _has_index_of(self, run: Run, tokens: int, database: Engine) -> bool:
        """True if the index in the database is the demo's, not one made since."""
        columns = (IndexRecord.text, IndexRecord.seed, IndexRecord.context_length, IndexRecord.tokens)
        with Session(database) as session:
            made = session.execute(select(*columns).join(RunRecord).where(RunRecord.name == run.name)).one_or_none()
        text = self.index.text
        return made is not None and tuple(made) == (text.dataset, self.index.seed, text.context_length, tokens)

    def _units(self, run: Run, steering: SteeringRequest) -> dict[str, dict[int, float]]:
        """Edit units from the runs' own files, because some runs may not be indexed yet."""
        units: dict[str, dict[int, float]] = {run.name: {}}
        for edit in steering.edits:
            of = run if edit.run is None else Run.load(edit.run, self.folder)
            units.setdefault(of.name, {})[edit.expert] = of.units.get(edit.expert, 1.0)
        return units


def is_indexed(run: Run, database: Engine) -> bool:
    """True if the run's examples are in the database."""
    return _has(IndexRecord.run_id, run, database)


def is_ready(run: Run, database: Engine) -> bool:
    """True if nothing is left to do. Labelling is the last step, so an interrupted preparation continues."""
    return _has(AutomaticLabelRecord.run_id, run, database)


def _has(column: Any, run: Run, database: Engine) -> bool:
    with Session(database) as session:
        query = select(column).join(RunRecord).where(RunRecord.name == run.name).limit(1)
        return session.scalar(query) is not None


def index_settings(config: IndexConfig) -> dict[str, Any]:
    """Settings that determine an index, without the folder of the text."""
    return {**config.model_dump(mode="json", exclude={"text": {"dataset"}}), "fingerprint": fingerprint(config.text)}


def _is_of(run: Run, weights: str) -> bool:
    from mxd.trainer.storage.run_sets import weights_digest

    return weights_digest([run]) == weights


def _read_packed(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        content: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path} is damaged. Restore it with git checkout.") from error
    return content


def _read(path: Path) -> dict[str, Any]:
    content: Mapping[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return dict(content)
