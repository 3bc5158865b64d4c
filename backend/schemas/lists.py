"""Lists of experts, and tags."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from mxd.backend.schemas.base import Schema
from mxd.backend.schemas.experts import ExpertRow

ListName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
LongText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=10_000)]
SomeExperts = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=10_000)]


class ListSummary(Schema):
    """A list without its entries."""

    id: int
    name: str
    note: str | None
    experts: int
    """Number of experts in the list."""
    updated_at: datetime


class ExpertLists(Schema):
    """Lists of a run."""

    lists: tuple[ListSummary, ...]
    """Most recently changed first."""


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


class ChangeListRequest(Schema):
    """Changes to a list. Omitted fields stay as they are."""

    name: ListName | None = None
    note: LongText | None = None
    """An empty string deletes the note."""


class EntriesRequest(Schema):
    """Experts to add, or the new order of a list."""

    experts: SomeExperts


class EntryNoteRequest(Schema):
    """Note on an entry."""

    note: LongText
    """An empty string deletes the note."""


class TagCount(Schema):
    """A tag and the number of experts that have it."""

    tag: str
    experts: int


class TagList(Schema):
    """Tags of a run."""

    tags: tuple[TagCount, ...]
