"""Saved steering sessions: what was asked for, so that the same texts can be written again."""

from __future__ import annotations

from math import isclose
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy.orm import Session

from backend import sessions
from backend.database import reading
from backend.errors import RunNotFoundError
from backend.library import Library
from backend.queries.runs import find_run
from backend.queries.steering import units_of
from backend.schemas import SavedSession, SaveSessionRequest, SessionList, SessionSummary, SteeringRequest
from backend.services import RunName, ServicesDep
from backend.sessions import SessionRecord
from trainer.config import Edit
from trainer.errors import NotFoundError
from trainer.store import writing

PROMPT_SHOWN = 200
NEAR = 0.005
"""Relative difference of units that nobody can see in a text."""

SessionId = Annotated[str, Path(max_length=32, pattern="^[a-z0-9]+$", description="Short id of a saved session.")]

router = APIRouter(tags=["sessions"])


@router.get("/runs/{run}/sessions")
def list_sessions(run: RunName, services: ServicesDep) -> SessionList:
    """The saved sessions of a run, the newest first."""
    with reading(services.store) as session:
        find_run(session, run)
        return SessionList(sessions=tuple(_summary(record) for record in sessions.sessions_of(session, run)))


@router.post("/runs/{run}/sessions", status_code=201)
def save_session(run: RunName, request: SaveSessionRequest, services: ServicesDep) -> SavedSession:
    """Save a session: prompt, edits, sampling and seed, which write the same texts whenever it is opened."""
    with writing(services.store) as session:
        units = sessions.kept_units(units_of(session, services.library, run, request.steering))
        steering = request.steering.model_dump(mode="json")
        record = sessions.save_session(session, run, request.name, steering, units)
        return _opened(session, services.library, record)


@router.get("/sessions/{id}")
def open_session(id: SessionId, services: ServicesDep) -> SavedSession:
    """A saved session, and whether anything has changed that its texts depend on."""
    with reading(services.store) as session:
        return _opened(session, services.library, sessions.find_session(session, id))


@router.delete("/sessions/{id}", status_code=204)
def delete_session(id: SessionId, services: ServicesDep) -> None:
    """Delete a saved session."""
    with writing(services.store) as session:
        sessions.delete_session(session, id)


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
    """The edit that turns an expert up, where nothing else is done."""
    if len(steering.edits) != 1:
        return None
    (edit,) = steering.edits
    return edit if edit.mode == "add" and edit.strength > 0 and edit.run in (None, run) else None


def _opened(session: Session, library: Library, record: SessionRecord) -> SavedSession:
    steering = SteeringRequest.model_validate(record.steering)
    return SavedSession(**_fields(record), steering=steering, changed=_changes(session, library, record, steering))


def _changes(session: Session, library: Library, record: SessionRecord, steering: SteeringRequest) -> tuple[str, ...]:
    try:
        now = sessions.kept_units(units_of(session, library, record.run, steering))
    except RunNotFoundError:
        return ("A run of this session is gone from the store, so its texts cannot be written again.",)
    except NotFoundError:
        return ("An expert of this session is gone: a run was fitted anew with fewer experts.",)
    if _alike(now, record.units):
        return ()
    return ("A run was indexed anew since this was saved: its strengths count in other units now.",)


def _alike(now: dict[str, dict[str, float]], kept: dict[str, dict[str, float]]) -> bool:
    """Whether units are the same but for what another processor's rounding does."""
    known = {(run, expert): unit for run, units in kept.items() for expert, unit in units.items()}
    found = {(run, expert): unit for run, units in now.items() for expert, unit in units.items()}
    return known.keys() == found.keys() and all(isclose(known[key], found[key], rel_tol=NEAR) for key in known)
