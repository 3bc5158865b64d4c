"""Lists of experts: made, filled, put in order, noted on, deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC
from typing import Annotated

from fastapi import APIRouter, Path
from sqlalchemy.orm import Session

from backend import lists
from backend.database import reading
from backend.lists import ListRecord
from backend.queries.experts import check_expert, rows_of
from backend.queries.runs import find_run
from backend.schemas import (
    ChangeListRequest,
    EntriesRequest,
    EntryNoteRequest,
    ExpertList,
    ExpertLists,
    ListEntry,
    ListSummary,
    MakeListRequest,
)
from backend.services import ExpertId, RunName, Services, ServicesDep
from trainer.store import writing

router = APIRouter(prefix="/runs/{run}/lists", tags=["lists"])

ListId = Annotated[int, Path(ge=0, lt=2**31, description="Number of the list.")]


@contextmanager
def _editing(services: Services, run: str, list_id: int) -> Iterator[tuple[Session, ListRecord]]:
    with writing(services.store) as session:
        find_run(session, run)
        yield session, lists.find_list(session, run, list_id)


def _summary(record: ListRecord, experts: int) -> ListSummary:
    return ListSummary(
        id=record.id,
        name=record.name,
        note=record.note,
        experts=experts,
        # SQLite gives times back without their zone; they were written in UTC.
        updated_at=record.updated_at if record.updated_at.tzinfo else record.updated_at.replace(tzinfo=UTC),
    )


@router.get("")
def expert_lists(run: RunName, services: ServicesDep) -> ExpertLists:
    """All lists of a run, the last changed first."""
    with reading(services.store) as session:
        find_run(session, run)
        return ExpertLists(lists=tuple(_summary(*found) for found in lists.lists_with_counts(session, run)))


@router.post("", status_code=201)
def make_list(run: RunName, request: MakeListRequest, services: ServicesDep) -> ListSummary:
    """A new list, with some experts in it at once if wanted."""
    with writing(services.store) as session:
        record = find_run(session, run)
        for expert in request.experts:
            check_expert(record, expert)
        made = lists.make_list(session, run, request.name, request.experts)
        session.flush()
        return _summary(made, len(lists.entries_of(session, made)))


@router.get("/{list_id}")
def expert_list(run: RunName, list_id: ListId, services: ServicesDep) -> ExpertList:
    """One list with its experts, in its order."""
    with reading(services.store) as session:
        record = find_run(session, run)
        found = lists.find_list(session, run, list_id)
        entries = lists.entries_of(session, found)
        vocabulary = services.library.run(run).vocabulary
        rows = rows_of(session, record, [entry.expert for entry in entries], vocabulary)
        return ExpertList(
            list=_summary(found, len(entries)),
            entries=tuple(
                ListEntry(row=rows[entry.expert], note=entry.note) for entry in entries if entry.expert in rows
            ),
        )


@router.patch("/{list_id}", status_code=204)
def change_list(run: RunName, list_id: ListId, request: ChangeListRequest, services: ServicesDep) -> None:
    """Give a list another name, or note."""
    with _editing(services, run, list_id) as (session, record):
        lists.change_list(session, record, request.name, request.note)


@router.delete("/{list_id}", status_code=204)
def delete_list(run: RunName, list_id: ListId, services: ServicesDep) -> None:
    """Delete a list; what people wrote about its experts stays."""
    with _editing(services, run, list_id) as (session, record):
        lists.delete_list(session, record)


@router.post("/{list_id}/experts", status_code=204)
def add_to_list(run: RunName, list_id: ListId, request: EntriesRequest, services: ServicesDep) -> None:
    """Add experts at the end; those that are in it stay where they are."""
    with _editing(services, run, list_id) as (session, record):
        of_run = find_run(session, run)
        for expert in request.experts:
            check_expert(of_run, expert)
        lists.add_entries(session, record, request.experts)


@router.put("/{list_id}/experts", status_code=204)
def order_list(run: RunName, list_id: ListId, request: EntriesRequest, services: ServicesDep) -> None:
    """Bring a list into another order: all of its experts, in that order."""
    with _editing(services, run, list_id) as (session, record):
        lists.order_entries(session, record, request.experts)


@router.put("/{list_id}/experts/{expert}/note", status_code=204)
def note_entry(
    run: RunName, list_id: ListId, expert: ExpertId, request: EntryNoteRequest, services: ServicesDep
) -> None:
    """Say why an expert is in a list."""
    with _editing(services, run, list_id) as (session, record):
        lists.note_entry(session, record, expert, request.note)


@router.delete("/{list_id}/experts/{expert}", status_code=204)
def remove_from_list(run: RunName, list_id: ListId, expert: ExpertId, services: ServicesDep) -> None:
    """Take an expert out of a list; nothing happens where it is not in it."""
    with _editing(services, run, list_id) as (session, record):
        lists.remove_entry(session, record, expert)
