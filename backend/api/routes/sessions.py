"""Saved steering sessions: the settings that reproduce the same texts."""

from __future__ import annotations

from math import isclose
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import ValidationError
from sqlalchemy.orm import Session

from mxd.backend.api.dependencies import RunName, ServicesDep, WriterDep
from mxd.backend.database import steering_sessions as sessions
from mxd.backend.database.engine import reading
from mxd.backend.database.steering_sessions import SessionRecord
from mxd.backend.errors import RunNotFoundError
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.queries.runs import find_run
from mxd.backend.queries.steering_units import units_of
from mxd.backend.schemas.steering import (
    HomeShowcase,
    SavedSession,
    SaveSessionRequest,
    SessionList,
    SessionSummary,
    Showcase,
    ShowcaseFile,
    SteeringRequest,
)
from mxd.trainer.config import Edit
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.open import writing

SHOWCASE_FILE = "showcase.json"
"""In the data folder. ``scripts/showcase.py`` writes it."""
PROMPT_SHOWN = 200
NEAR = 0.005
"""Largest relative difference of units without a visible effect."""

SessionId = Annotated[str, Path(max_length=32, pattern="^[a-z0-9]+$", description="Short id of a saved session.")]

router = APIRouter(tags=["sessions"])


@router.get("/runs/{run}/sessions")
def list_sessions(run: RunName, services: ServicesDep) -> SessionList:
    """Saved sessions of a run, newest first."""
    with reading(services.database) as session:
        find_run(session, run)
        records = sessions.sessions_of(session, run)
        return SessionList(sessions=tuple(_summary(record) for record in records if _is_readable(record)))


@router.post("/runs/{run}/sessions", status_code=201)
def save_session(run: RunName, request: SaveSessionRequest, services: ServicesDep, writer: WriterDep) -> SavedSession:
    """Save a session: prompt, edits, sampling and seed reproduce the same texts."""
    with writing(writer) as session:
        units = sessions.json_units(units_of(session, services.library, run, request.steering))
        steering = request.steering.model_dump(mode="json")
        record = sessions.save_session(session, run, request.name, steering, units)
        return _opened(session, services.library, record)


@router.get("/showcase")
def showcase(services: ServicesDep) -> HomeShowcase:
    """The session of the first page, with its texts at several strengths."""
    try:
        stored = ShowcaseFile.model_validate_json((services.settings.data / SHOWCASE_FILE).read_bytes())
    except FileNotFoundError:
        return HomeShowcase(showcase=None)
    except ValidationError as error:
        raise UserError(f"{SHOWCASE_FILE} in {services.settings.data} is damaged: {error}. Delete it.") from error
    with reading(services.database) as session:
        for record in sessions.sessions_of(session, stored.run):
            if record.name == stored.session and _is_readable(record):
                opened = _opened(session, services.library, record)
                if not opened.changed:
                    return HomeShowcase(showcase=Showcase(session=opened, texts=stored.texts))
    return HomeShowcase(showcase=None)


@router.get("/sessions/{id}")
def open_session(id: SessionId, services: ServicesDep) -> SavedSession:
    """A saved session, and whether anything that its texts depend on has changed."""
    with reading(services.database) as session:
        return _opened(session, services.library, sessions.find_session(session, id))


@router.delete("/sessions/{id}", status_code=204)
def delete_session(id: SessionId, writer: WriterDep) -> None:
    """Delete a saved session."""
    with writing(writer) as session:
        sessions.delete_session(session, id)


def _is_readable(record: SessionRecord) -> bool:
    """Return False for a session of another version or a damaged one, which must not hide the others."""
    try:
        SteeringRequest.model_validate(record.steering)
    except ValidationError:
        return False
    return True


def _summary(record: SessionRecord) -> SessionSummary:
    return SessionSummary(**_fields(record))


def _fields(record: SessionRecord) -> dict[str, object]:
    steering = SteeringRequest.model_validate(record.steering)
    prompt = steering.turns[-1].text if steering.turns else steering.prompt
    alone = _alone(record.run, steering)
    return {
        "id": record.id,
        "name": record.name,
        "run": record.run,
        "prompt": prompt[:PROMPT_SHOWN],
        "edits": len(steering.edits),
        "expert": None if alone is None else alone.expert,
        "strength": None if alone is None else alone.strength,
        "saved_at": record.saved_at_utc,
    }


def _alone(run: str, steering: SteeringRequest) -> Edit | None:
    """Return the edit that amplifies an expert, if it is the only one."""
    if len(steering.edits) != 1:
        return None
    (edit,) = steering.edits
    return edit if edit.mode == "add" and edit.strength > 0 and edit.run in (None, run) else None


def _opened(session: Session, library: RunLoader, record: SessionRecord) -> SavedSession:
    if not _is_readable(record):
        raise UserError(f"Session {record.id} is damaged or of another version. Delete it.")
    steering = SteeringRequest.model_validate(record.steering)
    return SavedSession(**_fields(record), steering=steering, changed=_changes(session, library, record, steering))


def _changes(session: Session, library: RunLoader, record: SessionRecord, steering: SteeringRequest) -> tuple[str, ...]:
    try:
        now = sessions.json_units(units_of(session, library, record.run, steering))
    except RunNotFoundError:
        return ("A run of this session is gone from the database, so its texts cannot be written again.",)
    except NotFoundError:
        return ("An expert of this session no longer exists: its run was trained again with fewer experts.",)
    if _alike(now, record.units):
        return ()
    return ("A run was indexed again after this session was saved, so the units of its strengths have changed.",)


def _alike(now: dict[str, dict[str, float]], stored: dict[str, dict[str, float]]) -> bool:
    """Return True if units differ at most by rounding."""
    known = {(run, expert): unit for run, units in stored.items() for expert, unit in units.items()}
    units_now = {(run, expert): unit for run, units in now.items() for expert, unit in units.items()}
    return known.keys() == units_now.keys() and all(isclose(known[key], units_now[key], rel_tol=NEAR) for key in known)
