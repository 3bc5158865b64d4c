"""Lists of experts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from mxd.backend.api.dependencies import ExpertId, RunName, ServicesDep, WriterDep
from mxd.backend.database import lists
from mxd.backend.database.engine import reading
from mxd.backend.database.lists import ListRecord
from mxd.backend.queries.experts import check_expert, rows_of
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas import (
    ChangeListRequest,
    EntriesRequest,
    EntryNoteRequest,
    ExpertList,
    ExpertLists,
    ListEntry,
    ListSummary,
    MakeListRequest,
)
from mxd.trainer.storage.database.open import writing

router = APIRouter(prefix="/runs/{run}/lists", tags=["lists"])

ListId = Annotated[int, Path(ge=0, lt=2**31, description="Number of the list.")]


@contextmanager
def _editing(writer: Engine, run: str, list_id: int) -> Iterator[tuple[Session, ListRecord]]:
    with writing(writer) as session:
        find_run(session, run)
        yield session, lists.find_list(session, run, list_id)


def _summary(record: ListRecord, experts: int) -> ListSummary:
    return ListSummary(
        id=record.id,
        name=record.name,
        note=record.note,
        experts=experts,
        # SQLite drops the time zone; times are stored in UTC.
        updated_at=record.updated_at if record.updated_at.tzinfo else record.updated_at.replace(tzinfo=UTC),
    )


@router.get("")
def expert_lists(run: RunName, services: ServicesDep) -> ExpertLists:
    """All lists of a run, last changed first."""
    with reading(services.database) as session:
        find_run(session, run)
        return ExpertLists(lists=tuple(_summary(*record) for record in lists.lists_with_counts(session, run)))


@router.post("", status_code=201)
def make_list(run: RunName, request: MakeListRequest, writer: WriterDep) -> ListSummary:
    """Create a list, optionally with experts."""
    with writing(writer) as session:
        record = find_run(session, run)
        for expert in request.experts:
            check_expert(record, expert)
        made = lists.make_list(session, run, request.name, request.experts)
        session.flush()
        return _summary(made, len(lists.entries_of(session, made)))


@router.get("/{list_id}")
def expert_list(run: RunName, list_id: ListId, services: ServicesDep) -> ExpertList:
    """One list with its experts, in its order."""
    with reading(services.database) as session:
        record = find_run(session, run)
        list_record = lists.find_list(session, run, list_id)
        entries = lists.entries_of(session, list_record)
        vocabulary = services.library.run(run).vocabulary
        rows = rows_of(session, record, [entry.expert for entry in entries], vocabulary)
        return ExpertList(
            list=_summary(list_record, len(entries)),
            entries=tuple(
                ListEntry(row=rows[entry.expert], note=entry.note) for entry in entries if entry.expert in rows
            ),
        )


@router.patch("/{list_id}", status_code=204)
def change_list(run: RunName, list_id: ListId, request: ChangeListRequest, writer: WriterDep) -> None:
    """Change the name or the note of a list."""
    with _editing(writer, run, list_id) as (session, record):
        lists.change_list(session, record, request.name, request.note)


@router.delete("/{list_id}", status_code=204)
def delete_list(run: RunName, list_id: ListId, writer: WriterDep) -> None:
    """Delete a list; annotations of its experts stay."""
    with _editing(writer, run, list_id) as (session, record):
        lists.delete_list(session, record)


@router.post("/{list_id}/experts", status_code=204)
def add_to_list(run: RunName, list_id: ListId, request: EntriesRequest, writer: WriterDep) -> None:
    """Append experts; those already in the list keep their position."""
    with _editing(writer, run, list_id) as (session, record):
        of_run = find_run(session, run)
        for expert in request.experts:
            check_expert(of_run, expert)
        lists.add_entries(session, record, request.experts)


@router.put("/{list_id}/experts", status_code=204)
def order_list(run: RunName, list_id: ListId, request: EntriesRequest, writer: WriterDep) -> None:
    """Reorder a list: all of its experts, in the new order."""
    with _editing(writer, run, list_id) as (session, record):
        lists.order_entries(session, record, request.experts)


@router.put("/{list_id}/experts/{expert}/note", status_code=204)
def note_entry(run: RunName, list_id: ListId, expert: ExpertId, request: EntryNoteRequest, writer: WriterDep) -> None:
    """Set the note of an expert in a list."""
    with _editing(writer, run, list_id) as (session, record):
        lists.note_entry(session, record, expert, request.note)


@router.delete("/{list_id}/experts/{expert}", status_code=204)
def remove_from_list(run: RunName, list_id: ListId, expert: ExpertId, writer: WriterDep) -> None:
    """Remove an expert from a list (idempotent)."""
    with _editing(writer, run, list_id) as (session, record):
        lists.remove_entry(session, record, expert)
