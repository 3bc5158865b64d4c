"""Annotations that users write: labels, notes, tags and lists of experts, saved steering sessions; and access tokens.

Annotations refer to a run by name rather than by id, so they survive indexing or training the run again. A session
stores the complete request and the 99th percentiles that its strengths refer to. Indexing a run again may change the
percentiles, and with them the meaning of a strength. Access tokens are random, displayed once, and stored as a hash. A
token has 256 random bits, so an unsalted SHA-256 is enough: brute force is infeasible.
"""

import hashlib
import secrets
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import JSON, DateTime, ForeignKey, Index, String, Text, UniqueConstraint, delete, func, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from mxd.backend.errors import ListNotFoundError, SessionNotFoundError
from mxd.backend.schemas.experts import AnnotationChange, ListChange, ListRef, TagCount
from mxd.backend.settings import Role
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.tables import utc_now


class NotesBase(DeclarativeBase):
    """Base class of the backend's tables."""


class LabelRecord(NotesBase):
    __tablename__ = "labels"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    label: Mapped[str] = mapped_column(String(200))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


class NoteRecord(NotesBase):
    __tablename__ = "notes"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str] = mapped_column(Text)
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


def labels_of(session: Session, run: str, experts: Collection[int] | None = None) -> dict[int, str]:
    chosen = [] if experts is None else [LabelRecord.expert.in_(list(experts))]
    query = select(LabelRecord.expert, LabelRecord.label).where(LabelRecord.run == run, *chosen)
    return dict(session.execute(query).all())


def labels_stamp(session: Session, run: str) -> tuple[int, datetime | None]:
    """Return a value that changes whenever a label of the run changes."""
    query = select(func.count(), func.max(LabelRecord.updated_at)).where(LabelRecord.run == run)
    count, newest = session.execute(query).one()
    return count, newest


def set_label(session: Session, run: str, expert: int, label: str | None) -> None:
    """Set the label of an expert, or delete it if it is None."""
    if label is None:
        session.execute(delete(LabelRecord).where(LabelRecord.run == run, LabelRecord.expert == expert))
        return
    # Later than all labels of the run even if the clock was set back: labels_stamp relies on it.
    _, newest = labels_stamp(session, run)
    now = utc_now()
    if newest is not None:
        now = max(now, newest.replace(tzinfo=newest.tzinfo or UTC) + timedelta(microseconds=1))
    session.merge(LabelRecord(run=run, expert=expert, label=label, updated_at=now))


class TagRecord(NotesBase):
    __tablename__ = "tags"

    run: Mapped[str] = mapped_column(String(200), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    tag: Mapped[str] = mapped_column(String(60), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (Index("experts_of_tag", "run", "tag", "expert"),)


def annotate(session: Session, run: str, expert: int, change: AnnotationChange) -> None:
    """Change the label, the note and the tags of an expert. Omitted fields change nothing."""
    key = {"run": run, "expert": expert}
    if "label" in change.model_fields_set:
        set_label(session, run, expert, change.label)
    if change.note is not None:
        session.merge(NoteRecord(**key, note=change.note, updated_at=utc_now()))
    elif "note" in change.model_fields_set:
        session.execute(delete(NoteRecord).filter_by(**key))
    for tag in change.add_tags:
        if session.get(TagRecord, (run, expert, tag)) is None:
            session.add(TagRecord(**key, tag=tag, created_at=utc_now()))
    session.execute(delete(TagRecord).filter_by(**key).where(TagRecord.tag.in_(change.remove_tags)))


def tags_of(session: Session, run: str, experts: Collection[int]) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = defaultdict(list)
    mine = (TagRecord.run == run, TagRecord.expert.in_(list(experts)))
    for expert, tag in session.execute(select(TagRecord.expert, TagRecord.tag).where(*mine).order_by(TagRecord.tag)):
        found[expert].append(tag)
    return {expert: tuple(names) for expert, names in found.items()}


def tag_counts(session: Session, run: str) -> tuple[TagCount, ...]:
    query = select(TagRecord.tag, func.count()).where(TagRecord.run == run).group_by(TagRecord.tag)
    return tuple(TagCount(tag=tag, experts=count) for tag, count in session.execute(query.order_by(TagRecord.tag)))


def tagged(session: Session, run: str, tag: str) -> set[int]:
    return set(session.scalars(select(TagRecord.expert).where(TagRecord.run == run, TagRecord.tag == tag)))


class ListRecord(NotesBase):
    """A list. Its name is unique within the run."""

    __tablename__ = "lists"

    id: Mapped[int] = mapped_column(primary_key=True)
    run: Mapped[str] = mapped_column(String(200))
    name: Mapped[str] = mapped_column(String(120))
    note: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    updated_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))

    __table_args__ = (UniqueConstraint("run", "name"),)


class EntryRecord(NotesBase):
    __tablename__ = "list_entries"

    list_id: Mapped[int] = mapped_column(ForeignKey("lists.id", ondelete="CASCADE"), primary_key=True)
    expert: Mapped[int] = mapped_column(primary_key=True)
    place: Mapped[int]
    """Sort key within the list. Values need not be consecutive."""
    note: Mapped[str | None] = mapped_column(Text)


def find_list(session: Session, run: str, list_id: int) -> ListRecord:
    record = session.get(ListRecord, list_id)
    if record is None or record.run != run:
        raise ListNotFoundError(f"Run '{run}' has no list {list_id}. It may have been deleted.")
    return record


def make_list(session: Session, run: str, name: str, experts: Sequence[int]) -> ListRecord:
    _check_name(session, run, name)
    now = utc_now()
    record = ListRecord(run=run, name=name, created_at=now, updated_at=now)
    session.add(record)
    session.flush()
    _add_entries(session, record, experts)
    return record


def change_list(session: Session, record: ListRecord, change: ListChange) -> None:
    """Make the changes in the order of their fields."""
    if change.name is not None and change.name != record.name:
        _check_name(session, record.run, change.name)
        record.name = change.name
    if change.note is not None:
        record.note = change.note or None
    entry = EntryRecord
    session.execute(delete(entry).where(entry.list_id == record.id, entry.expert.in_(change.remove)))
    _add_entries(session, record, change.add)
    entries = {entry.expert: entry for entry in entries_of(session, record)}
    if change.order is not None and sorted(change.order) != sorted(entries):
        raise UserError(f"The list '{record.name}' has changed. Reload it, then reorder it.")
    for place, expert in enumerate(change.order or (), start=1):
        entries[expert].place = place
    for expert, note in change.entry_notes.items():
        if expert not in entries:
            raise ListNotFoundError(f"Expert {expert} is not in the list '{record.name}'. Add it first.")
        entries[expert].note = note or None
    record.updated_at = utc_now()


def _check_name(session: Session, run: str, name: str) -> None:
    # Not in SQL: SQLite's lower() only handles ASCII.
    names = session.scalars(select(ListRecord.name).where(ListRecord.run == run))
    if name.casefold() in {known.casefold() for known in names}:
        raise UserError(f"A list named '{name}' already exists. Choose another name, or add to that list.")


def delete_list(session: Session, record: ListRecord) -> None:
    """Delete a list and its entries. Labels, notes and tags of its experts are kept."""
    session.execute(delete(EntryRecord).where(EntryRecord.list_id == record.id))
    session.delete(record)


def entries_of(session: Session, record: ListRecord) -> list[EntryRecord]:
    query = select(EntryRecord).where(EntryRecord.list_id == record.id)
    return list(session.scalars(query.order_by(EntryRecord.place, EntryRecord.expert)))


def _add_entries(session: Session, record: ListRecord, experts: Sequence[int]) -> None:
    """Append experts to a list. Experts already in it keep their place."""
    places = {entry.expert: entry.place for entry in entries_of(session, record)}
    fresh = [expert for expert in dict.fromkeys(experts) if expert not in places]
    numbered = enumerate(fresh, start=max(places.values(), default=0) + 1)
    session.add_all(EntryRecord(list_id=record.id, expert=expert, place=place) for place, expert in numbered)


def lists_with_counts(session: Session, run: str) -> list[tuple[ListRecord, int]]:
    count = select(func.count()).where(EntryRecord.list_id == ListRecord.id).scalar_subquery()
    query = select(ListRecord, count).where(ListRecord.run == run)
    return [(record, size) for record, size in session.execute(query.order_by(ListRecord.updated_at.desc()))]


def lists_with(session: Session, run: str, expert: int) -> tuple[ListRef, ...]:
    of_list = EntryRecord.list_id == ListRecord.id
    query = select(ListRecord.id, ListRecord.name).join(EntryRecord, of_list)
    query = query.where(ListRecord.run == run, EntryRecord.expert == expert).order_by(ListRecord.name)
    return tuple(ListRef(id=number, name=name) for number, name in session.execute(query))


ALPHABET = "23456789abcdefghjkmnpqrstuvwxyz"
"""Letters and digits that are not easily confused when an address is read aloud or typed."""
ID_LENGTH = 7


class SessionRecord(NotesBase):
    __tablename__ = "sessions"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    run: Mapped[str] = mapped_column(String(200), index=True)
    name: Mapped[str] = mapped_column(String(200))
    steering: Mapped[dict[str, Any]] = mapped_column(JSON)
    """The request as JSON."""
    units: Mapped[dict[str, dict[str, float]]] = mapped_column(JSON)
    """Run -> expert -> 99th percentile at the time of saving."""
    saved_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    text: Mapped[str | None] = mapped_column(String(400))
    """Beginning of the steered text. None for a session saved without it."""
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Both texts and the price of the edits, as JSON. None for a session saved without them."""


def save_session(
    session: Session, run: str, name: str, steering: dict[str, Any], units: dict[str, dict[str, float]], **texts: Any
) -> SessionRecord:
    """Store a session under a new id. ``texts``: the columns ``text`` and ``result``."""
    new_id = "".join(secrets.choice(ALPHABET) for _ in range(ID_LENGTH))
    record = SessionRecord(id=new_id, run=run, name=name, steering=steering, units=units, saved_at=utc_now(), **texts)
    session.add(record)
    session.flush()
    return record


def json_units(units: dict[str, dict[int, float]]) -> dict[str, dict[str, float]]:
    """Return units with string keys, as JSON requires."""
    return {run: {str(expert): unit for expert, unit in known.items()} for run, known in units.items()}


def find_session(session: Session, id: str) -> SessionRecord:
    record = session.get(SessionRecord, id)
    if record is None:
        raise SessionNotFoundError(f"Unknown session: {id}. It may have been deleted.")
    return record


def sessions_of(session: Session, run: str | None = None) -> list[SessionRecord]:
    query = select(SessionRecord) if run is None else select(SessionRecord).where(SessionRecord.run == run)
    return list(session.scalars(query.order_by(SessionRecord.saved_at.desc(), SessionRecord.id)))


def delete_session(session: Session, id: str) -> None:
    session.delete(find_session(session, id))


PREFIX = "mxd_"
"""Prefix that lets secret scanners recognise a leaked token."""
RANDOM_BYTES = 32


class AccessTokenRecord(NotesBase):
    __tablename__ = "access_tokens"

    id: Mapped[int] = mapped_column(primary_key=True)
    role: Mapped[str] = mapped_column(String(8))
    name: Mapped[str] = mapped_column(String(100))
    """Purpose or owner, chosen by its creator."""
    sha256: Mapped[str] = mapped_column(String(64), unique=True)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))


@dataclass(frozen=True)
class NewToken:
    """A new token, displayed once."""

    id: int
    role: Role
    name: str
    token: str


SHOWN_ONCE = "A token is shown only once; the database keeps a hash of it."


def create_token(session: Session, role: Role, name: str) -> NewToken:
    """Create a token. It cannot be displayed again."""
    token = PREFIX + secrets.token_urlsafe(RANDOM_BYTES)
    record = AccessTokenRecord(role=role, name=name, sha256=digest(token), created_at=utc_now())
    session.add(record)
    session.flush()
    return NewToken(record.id, role, name, token)


def role_of(session: Session, token: str) -> Role | None:
    role = session.scalar(select(AccessTokenRecord.role).where(AccessTokenRecord.sha256 == digest(token)))
    return "write" if role == "write" else "read" if role == "read" else None


def tokens(session: Session) -> Sequence[AccessTokenRecord]:
    return session.scalars(select(AccessTokenRecord).order_by(AccessTokenRecord.id)).all()


def revoke_token(session: Session, token_id: int) -> None:
    record = session.get(AccessTokenRecord, token_id)
    if record is None:
        raise NotFoundError(f"Unknown token: {token_id}. Run 'mxd token list' to see the active tokens.")
    session.delete(record)


def digest(token: str) -> str:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode()).hexdigest()
