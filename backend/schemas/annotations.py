"""Annotations: the labels, notes, tags and lists that users write."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import ExpertRow

ListName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
LongText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=10_000)]
ExpertNumber = Annotated[int, Field(ge=0, lt=2**31)]
SomeExperts = Annotated[tuple[ExpertNumber, ...], Field(max_length=10_000)]
LabelText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
NoteText = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=10_000)]
Tags = Annotated[
    tuple[Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=60)], ...],
    Field(max_length=100),
]


class ListSummary(Schema):
    """A list without its entries."""

    id: int
    name: str
    note: str | None
    experts: int
    """Number of experts in the list."""
    updated_at: datetime


class TagCount(Schema):
    """A tag and the number of experts that have it."""

    tag: str
    experts: int


class ExpertLists(Schema):
    """Lists and tags of a run."""

    lists: tuple[ListSummary, ...]
    """Most recently changed first."""
    tags: tuple[TagCount, ...]
    """In alphabetical order."""


class ListEntry(Schema):
    """An expert in a list."""

    row: ExpertRow
    note: str | None
    """Note on this entry."""


class ExpertList(Schema):
    """A list with its entries."""

    list: ListSummary
    entries: tuple[ListEntry, ...]
    """Entries in the list's order."""


class MakeListRequest(Schema):
    """A new list."""

    name: ListName
    experts: SomeExperts = ()
    """Ids of the first entries."""


class ListChange(Schema):
    """Changes to a list, made in the order of these fields. Omitted fields change nothing."""

    name: ListName | None = None
    note: LongText | None = None
    """An empty string deletes the note."""
    remove: SomeExperts = ()
    """Experts to remove; those that are not in the list are ignored."""
    add: SomeExperts = ()
    """Experts to append; those already in the list keep their position."""
    order: SomeExperts | None = None
    """All experts of the list, in the new order."""
    entry_notes: Annotated[dict[ExpertNumber, LongText], Field(max_length=10_000, default_factory=dict)]
    """Expert of the list -> note on this entry. An empty string deletes the note."""


class AnnotationChange(Schema):
    """Changes to the label, the note and the tags of an expert. Omitted fields change nothing."""

    label: LabelText | None = None
    """null deletes the label."""
    note: NoteText | None = None
    """null deletes the note."""
    add_tags: Tags = ()
    remove_tags: Tags = ()
