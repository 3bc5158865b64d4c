"""What people add to experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy.orm import Session

from backend import notes, tags
from backend.database import reading
from backend.queries.experts import check_expert
from backend.queries.runs import find_run
from backend.schemas import LabelRequest, NoteRequest, TagCount, TagList
from backend.services import ExpertId, RunName, Services, ServicesDep
from trainer.errors import UserError
from trainer.store import writing

router = APIRouter(prefix="/runs/{run}/experts/{expert}", tags=["notes"])
of_run = APIRouter(prefix="/runs/{run}", tags=["notes"])

Tag = Annotated[str, Path(min_length=1, max_length=60, description="The tag, as it stands on screen.")]


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


@router.put("/tags/{tag}", status_code=204)
def add_tag(run: RunName, expert: ExpertId, tag: Tag, services: ServicesDep) -> None:
    """Put a tag on an expert; nothing happens where it has it."""
    if not (kept := tag.strip()):
        raise UserError("A tag needs at least one letter; type one.")
    with _editing(services, run, expert) as session:
        tags.add_tag(session, run, expert, kept)


@router.delete("/tags/{tag}", status_code=204)
def remove_tag(run: RunName, expert: ExpertId, tag: Tag, services: ServicesDep) -> None:
    """Take a tag off; nothing happens where the expert does not have it."""
    with _editing(services, run, expert) as session:
        tags.remove_tag(session, run, expert, tag)


@of_run.get("/tags")
def tag_list(run: RunName, services: ServicesDep) -> TagList:
    """All tags of a run, in alphabetical order, with how many experts have each."""
    with reading(services.store) as session:
        find_run(session, run)
        counts = tags.tag_counts(session, run)
    return TagList(tags=tuple(TagCount(tag=tag, experts=count) for tag, count in counts))
