"""A sample: a data folder whose runs come with what was written and measured of them, and how a store learns of it."""

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

from backend import notes, sessions
from backend.schemas import SteeringRequest
from trainer.config import IndexConfig, InfluenceConfig
from trainer.documents import fingerprint
from trainer.errors import NotFoundError, UserError
from trainer.excerpts import LEFT_OUT, insert_checked
from trainer.registration import register_run
from trainer.rows_as_json import from_json
from trainer.run import Run, run_names
from trainer.store import (
    EvaluationRecord,
    ExpertRecord,
    IndexRecord,
    InfluenceRecord,
    ProbeRecord,
    RunRecord,
    utc_now,
    writing,
)
from trainer.tables import AutomaticLabelRecord

INDEX_FILE = "index.json"
"""The settings of the index, with the text's place given from the folder; ``first`` names the run to be shown first."""
LABELS_FILE = "labels.json"
"""Where there are any: run -> expert -> label."""
SESSIONS_FILE = "sessions.json"
"""Where there are any: run -> name -> steering session, the first to be shown first."""
EVALUATIONS_FILE = "evaluations.json"
"""Where there are any: rows of evaluations and of probes as JSON, each with the ``run`` that it hangs on."""
INFLUENCE_FILE = "influence.json.gz"
"""Where there is any: run -> ``weights``, their digest; ``index``, settings of the index whose contexts were read, and
``indexed_tokens`` of it; ``settings`` of the measurement; ``rows``, as JSON."""

MEASURED: dict[type[EvaluationRecord | ProbeRecord], tuple[str, ...]] = {
    EvaluationRecord: ("subject", "fingerprint"),
    ProbeRecord: ("run_id", "fingerprint", "level"),
}
"""What ``EVALUATIONS_FILE`` holds, under its table's name: the record, and the columns of which one is never twice."""


@dataclass(frozen=True)
class Sample:
    """A data folder with ``INDEX_FILE`` in it."""

    folder: Path
    first: str
    """Name of the run that is shown first."""
    index: IndexConfig
    """How its runs are indexed, with the text where it lies."""

    @classmethod
    def open(cls, folder: Path) -> Sample:
        """The sample in a folder.

        Raises:
            NotFoundError: there is none, or it has no run.
        """
        values = _read(folder / INDEX_FILE)
        names = run_names(folder)
        if not values or not names:
            raise NotFoundError(
                f"The sample is not in {folder}; get it back with git checkout, or fit a run of your own."
            )
        first = values.pop("first", names[0])
        config = IndexConfig.model_validate(values)
        text = config.text.model_copy(update={"text": str(folder / config.text.text)})
        return cls(folder, first, config.model_copy(update={"text": text}))

    @cached_property
    def runs(self) -> list[Run]:
        """All runs, the first to be shown first."""
        names = sorted(run_names(self.folder), key=lambda name: (name != self.first, name))
        return [Run.load(name, self.folder) for name in names]

    def enter(self, store: Engine) -> None:
        """Make a store know the runs, in their order, and what was measured of them.

        Raises:
            UserError: a run, or what was measured, is damaged.
        """
        with Session(store) as session:
            known = set(session.scalars(select(RunRecord.name)))
        new = [run for run in self.runs if run.name not in known]
        for run in new:
            register_run(run, store)
        with writing(store) as session:
            self._put_in_order(session, new)
            self._enter_measured(session)

    def _put_in_order(self, session: Session, new: Sequence[Run]) -> None:
        """By the time of their files, which is that of a checkout, no run would come before another."""
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
                values = from_json(table, row, LEFT_OUT) | {"run_id": ids.get(run)}
                if run in ids and tuple(values[column] for column in key) not in known:
                    insert_checked(session, table, [values])

    def enter_written(self, run: Run, store: Engine) -> None:
        """Give an indexed run its labels and sessions; once, so that a person's own are never undone, and what a
        person deletes stays away.
        """
        with writing(store) as session:
            if notes.count_of(session, run.name) or sessions.sessions_of(session, run.name):
                return
            for expert, label in _read(self.folder / LABELS_FILE).get(run.name, {}).items():
                notes.set_label(session, run.name, int(expert), label)
            # The newest is listed first.
            for name, values in reversed(_read(self.folder / SESSIONS_FILE).get(run.name, {}).items()):
                steering = SteeringRequest.model_validate(values)
                units = sessions.kept_units(self._units(run, steering))
                sessions.save_session(session, run.name, name, steering.model_dump(mode="json"), units)

    def enter_influence(self, run: Run, store: Engine) -> None:
        """Give an indexed run what was measured of its experts, if it is of these very weights, and of an index made
        with these settings, as that of the store was. What somebody has measured stays.

        Raises:
            UserError: what was measured is damaged.
        """
        table: Table = InfluenceRecord.__table__  # type: ignore[assignment]
        if _has(InfluenceRecord.run_id, run, store):
            return
        shipped = _read_packed(self.folder / INFLUENCE_FILE).get(run.name)
        if shipped is None or shipped["index"] != index_settings(self.index) or not _is_of(run, shipped["weights"]):
            return
        if not self._has_index_of(run, shipped["indexed_tokens"], store):
            return
        from trainer.influence.write import write_influences  # brings PyTorch

        values = [from_json(table, row, LEFT_OUT) for row in shipped["rows"]]
        with writing(store) as session:
            run_id = session.scalars(select(RunRecord.id).where(RunRecord.name == run.name)).one()
            active = select(ExpertRecord.expert).where(ExpertRecord.run_id == run_id, ExpertRecord.active_tokens > 0)
            known = set(session.scalars(active))
            shown = [row for row in values if row["expert"] in known]
            write_influences(session, run_id, shown, InfluenceConfig.model_validate(shipped.get("settings", {})))

    def _has_index_of(self, run: Run, tokens: int, store: Engine) -> bool:
        """Whether the index in the store is the sample's, and not one that somebody has made since."""
        columns = (IndexRecord.text, IndexRecord.seed, IndexRecord.context, IndexRecord.tokens)
        with Session(store) as session:
            made = session.execute(select(*columns).join(RunRecord).where(RunRecord.name == run.name)).one_or_none()
        text = self.index.text
        return made is not None and tuple(made) == (text.text, self.index.seed, text.context, tokens)

    def _units(self, run: Run, steering: SteeringRequest) -> dict[str, dict[int, float]]:
        """As the runs' own files have them, since not all of them may be indexed yet."""
        units: dict[str, dict[int, float]] = {run.name: {}}
        for edit in steering.edits:
            of = run if edit.run is None else Run.load(edit.run, self.folder)
            units.setdefault(of.name, {})[edit.expert] = of.units.get(edit.expert, 1.0)
        return units


def is_indexed(run: Run, store: Engine) -> bool:
    """Whether a run's contexts are in the store."""
    return _has(IndexRecord.run_id, run, store)


def is_ready(run: Run, store: Engine) -> bool:
    """Whether nothing is left to do: labelling is the last step, so that whoever is killed before its end goes on."""
    return _has(AutomaticLabelRecord.run_id, run, store)


def _has(column: Any, run: Run, store: Engine) -> bool:
    with Session(store) as session:
        wanted = select(column).join(RunRecord).where(RunRecord.name == run.name).limit(1)
        return session.scalar(wanted) is not None


def index_settings(config: IndexConfig) -> dict[str, Any]:
    """What an index depends on, without the folder that its text lies in."""
    return {**config.model_dump(mode="json", exclude={"text": {"text"}}), "fingerprint": fingerprint(config.text)}


def _is_of(run: Run, weights: str) -> bool:
    from trainer.evaluation.write import weights_digest  # brings PyTorch

    return weights_digest([run]) == weights


def _read_packed(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path} is damaged; get it back with git checkout.") from error
    return found


def _read(path: Path) -> dict[str, Any]:
    found: Mapping[str, Any] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return dict(found)
