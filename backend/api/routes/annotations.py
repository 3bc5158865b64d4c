"""User annotations of experts: labels, notes and tags."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.api.dependencies import ExpertId, RunName, ServicesDep, WriterDep
from mxd.backend.database import annotations as notes
from mxd.backend.database import annotations as tags
from mxd.backend.database.engine import reading
from mxd.backend.queries.experts import check_expert
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas import LabelRequest, NoteRequest, TagCount, TagList
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import writing

router = APIRouter(prefix="/runs/{run}/experts/{expert}", tags=["notes"])
of_run = APIRouter(prefix="/runs/{run}", tags=["notes"])

Tag = Annotated[str, Path(min_length=1, max_length=60, description="The tag.")]


@contextmanager
def _editing(writer: Engine, run: str, expert: int) -> Iterator[Session]:
    with writing(writer) as session:
        check_expert(find_run(session, run), expert)
        yield session


@router.put("/label", status_code=204)
def set_label(run: RunName, expert: ExpertId, request: LabelRequest, writer: WriterDep) -> None:
    """Set the label of an expert."""
    with _editing(writer, run, expert) as session:
        notes.set_label(session, run, expert, request.label)


@router.delete("/label", status_code=204)
def remove_label(run: RunName, expert: ExpertId, writer: WriterDep) -> None:
    """Remove the label of an expert (idempotent)."""
    with _editing(writer, run, expert) as session:
        notes.remove_label(session, run, expert)


@router.put("/note", status_code=204)
def set_note(run: RunName, expert: ExpertId, request: NoteRequest, writer: WriterDep) -> None:
    """Set the note of an expert."""
    with _editing(writer, run, expert) as session:
        notes.set_note(session, run, expert, request.note)


@router.delete("/note", status_code=204)
def remove_note(run: RunName, expert: ExpertId, writer: WriterDep) -> None:
    """Remove the note of an expert (idempotent)."""
    with _editing(writer, run, expert) as session:
        notes.remove_note(session, run, expert)


@router.put("/tags/{tag:path}", status_code=204)
def add_tag(run: RunName, expert: ExpertId, tag: Tag, writer: WriterDep) -> None:
    """Add a tag to an expert (idempotent)."""
    if not (stripped := tag.strip()).strip("."):  # browsers resolve . and .. in addresses
        raise UserError("A tag needs at least one letter.")
    with _editing(writer, run, expert) as session:
        tags.add_tag(session, run, expert, stripped)


@router.delete("/tags/{tag:path}", status_code=204)
def remove_tag(run: RunName, expert: ExpertId, tag: Tag, writer: WriterDep) -> None:
    """Remove a tag from an expert (idempotent)."""
    with _editing(writer, run, expert) as session:
        tags.remove_tag(session, run, expert, tag.strip())


@of_run.get("/tags")
def tag_list(run: RunName, services: ServicesDep) -> TagList:
    """All tags of a run in alphabetical order, each with its number of experts."""
    with reading(services.database) as session:
        find_run(session, run)
        counts = tags.tag_counts(session, run)
    return TagList(tags=tuple(TagCount(tag=tag, experts=count) for tag, count in counts))
