"""Annotations: the labels, notes, tags and lists that users write."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from mxd.backend.api.dependencies import ExpertId, RunName, ServicesDep, WriterDep
from mxd.backend.database import annotations as notes
from mxd.backend.database.annotations import ListRecord, add_tag, remove_tag, set_label, set_note, tag_counts
from mxd.backend.database.engine import reading
from mxd.backend.queries.experts import rows_of
from mxd.backend.queries.runs import aware, check_expert, find_run
from mxd.backend.schemas import experts as bodies
from mxd.trainer.storage.database.open import writing

router = APIRouter(prefix="/runs/{run}", tags=["annotations"])

ListId = Annotated[int, Path(ge=0, lt=2**31, description="Number of the list.")]


@router.patch("/experts/{expert}", status_code=204)
def annotate_expert(run: RunName, expert: ExpertId, change: bodies.AnnotationChange, writer: WriterDep) -> None:
    """Change the label, the note and the tags of an expert."""
    with writing(writer) as session:
        check_expert(find_run(session, run), expert)
        if "label" in change.model_fields_set:
            set_label(session, run, expert, change.label)
        if "note" in change.model_fields_set:
            set_note(session, run, expert, change.note)
        for tag in change.add_tags:
            add_tag(session, run, expert, tag)
        for tag in change.remove_tags:
            remove_tag(session, run, expert, tag)


def _summary(record: ListRecord, experts: int) -> bodies.ListSummary:
    return bodies.ListSummary(
        id=record.id, name=record.name, note=record.note, experts=experts, updated_at=aware(record.updated_at)
    )


@router.get("/lists")
def expert_lists(run: RunName, services: ServicesDep) -> bodies.ExpertLists:
    """All lists of a run, last changed first, and its tags, each with its number of experts."""
    with reading(services.database) as session:
        find_run(session, run)
        return bodies.ExpertLists(
            lists=tuple(_summary(*record) for record in notes.lists_with_counts(session, run)),
            tags=tuple(bodies.TagCount(tag=tag, experts=count) for tag, count in tag_counts(session, run)),
        )


@router.post("/lists", status_code=201)
def make_list(run: RunName, request: bodies.MakeListRequest, writer: WriterDep) -> bodies.ListSummary:
    """Create a list, optionally with experts."""
    with writing(writer) as session:
        record = find_run(session, run)
        for expert in request.experts:
            check_expert(record, expert)
        made = notes.make_list(session, run, request.name, request.experts)
        session.flush()
        return _summary(made, len(notes.entries_of(session, made)))


@router.get("/lists/{list_id}")
def expert_list(run: RunName, list_id: ListId, services: ServicesDep) -> bodies.ExpertList:
    """One list with its experts, in its order."""
    with reading(services.database) as session:
        record = find_run(session, run)
        list_record = notes.find_list(session, run, list_id)
        entries = notes.entries_of(session, list_record)
        vocabulary = services.runs.run(run).vocabulary
        rows = rows_of(session, record, [entry.expert for entry in entries], vocabulary)
        return bodies.ExpertList(
            list=_summary(list_record, len(entries)),
            entries=tuple(
                bodies.ListEntry(row=rows[entry.expert], note=entry.note) for entry in entries if entry.expert in rows
            ),
        )


@router.patch("/lists/{list_id}", status_code=204)
def change_list(run: RunName, list_id: ListId, change: bodies.ListChange, writer: WriterDep) -> None:
    """Change the name, the note and the experts of a list; all of it or, on an error, nothing."""
    with writing(writer) as session:
        of_run = find_run(session, run)
        record = notes.find_list(session, run, list_id)
        for expert in change.add:
            check_expert(of_run, expert)
        notes.change_list(session, record, change.name, change.note)
        notes.remove_entries(session, record, change.remove)
        notes.add_entries(session, record, change.add)
        if change.order is not None:
            notes.order_entries(session, record, change.order)
        for expert, note in change.entry_notes.items():
            notes.note_entry(session, record, expert, note)


@router.delete("/lists/{list_id}", status_code=204)
def delete_list(run: RunName, list_id: ListId, writer: WriterDep) -> None:
    """Delete a list; annotations of its experts stay."""
    with writing(writer) as session:
        find_run(session, run)
        notes.delete_list(session, notes.find_list(session, run, list_id))
