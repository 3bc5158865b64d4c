"""Lists of experts, and tags."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field, StringConstraints

from backend.schemas.base import Schema
from backend.schemas.experts import ExpertRow

ListName = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=120)]
LongText = Annotated[str, StringConstraints(strip_whitespace=True, max_length=10_000)]
SomeExperts = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=10_000)]


class ListSummary(Schema):
    id: int
    name: str
    note: str | None
    experts: int
    """How many are in it."""
    updated_at: datetime


class ExpertLists(Schema):
    lists: tuple[ListSummary, ...]
    """The last changed first."""


class ListEntry(Schema):
    row: ExpertRow
    note: str | None
    """Why it is in this list."""


class ExpertList(Schema):
    list: ListSummary
    entries: tuple[ListEntry, ...]
    """In the list's own order."""


class MakeListRequest(Schema):
    name: ListName
    experts: SomeExperts = ()


class ChangeListRequest(Schema):
    name: ListName | None = None
    note: LongText | None = None
    """Empty takes it away; left out, it stays."""


class EntriesRequest(Schema):
    experts: SomeExperts


class EntryNoteRequest(Schema):
    note: LongText
    """Empty takes it away."""


class TagCount(Schema):
    tag: str
    experts: int


class TagList(Schema):
    tags: tuple[TagCount, ...]
