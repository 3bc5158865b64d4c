"""What people add to experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import APIRouter
from sqlalchemy.orm import Session

from backend import notes
from backend.queries.experts import check_expert
from backend.queries.runs import find_run
from backend.schemas import LabelRequest, NoteRequest
from backend.services import ExpertId, RunName, Services, ServicesDep
from trainer.store import writing

router = APIRouter(prefix="/runs/{run}/experts/{expert}", tags=["notes"])


@contextmanager
def _editing(services: Services, run: str, expert: int) -> Iterator[Session]:
    with writing(services.store) as session:
        check_expert(find_run(session, run), expert)
        yield session


@router.put("/label", status_code=204)
def set_label(run: RunName, expert: ExpertId, request: LabelRequest, services: ServicesDep) -> None:
    """Give an expert a label."""
    with _editing(services, run, expert) as session:
        notes.set_label(session, run, expert, request.label)


@router.delete("/label", status_code=204)
def remove_label(run: RunName, expert: ExpertId, services: ServicesDep) -> None:
    """Take its label away; nothing happens where it has none."""
    with _editing(services, run, expert) as session:
        notes.remove_label(session, run, expert)


@router.put("/note", status_code=204)
def set_note(run: RunName, expert: ExpertId, request: NoteRequest, services: ServicesDep) -> None:
    """Give an expert a note."""
    with _editing(services, run, expert) as session:
        notes.set_note(session, run, expert, request.note)


@router.delete("/note", status_code=204)
def remove_note(run: RunName, expert: ExpertId, services: ServicesDep) -> None:
    """Take its note away; nothing happens where it has none."""
    with _editing(services, run, expert) as session:
        notes.remove_note(session, run, expert)
