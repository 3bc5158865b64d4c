"""Pack a run with its index, labels and results into one .mxd file, atomically; never access tokens.

A zip file in which every entry has a known name:

manifest.json              version, run, and size and SHA-256 of every other entry
run/run.json, layer.json, layer.safetensors, units.json, metrics.json, tokenizer/…
database/TABLE.jsonl       database rows, one JSON document per line
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import LabelRecord, NoteRecord, TagRecord
from mxd.backend.database.lists import EntryRecord, ListRecord
from mxd.backend.database.steering_sessions import SessionRecord
from mxd.backend.queries.runs import find_run
from mxd.trainer.config import Config, RunName
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.rows import RUN_TABLES, as_json, insert_checked, rows_of_run
from mxd.trainer.storage.database.tables import EvaluationRecord, IndexRecord, MeasurementRecord, ProbeRecord
from mxd.trainer.storage.run import CARD_FILE, RUN_FILE, SHARED_FILES, Run
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import disk_errors

OF_PEOPLE: dict[str, Table] = {
    record.__tablename__: record.__table__  # type: ignore[misc]
    for record in (LabelRecord, NoteRecord, TagRecord, ListRecord, EntryRecord, SessionRecord)
}
"""Tables of user annotations, in insertion order."""
EXCLUDED_COLUMNS = frozenset({"run"})


def rows_of_people(session: Session, run: str, table: Table) -> Iterator[dict[str, Any]]:
    """Return all rows of a run in a table."""
    query = select(table).order_by(*table.primary_key.columns)
    if "run" in table.c:
        query = query.where(table.c.run == run)
    else:
        of_run = select(ListRecord.id).where(ListRecord.run == run)
        query = query.where(table.c.list_id.in_(of_run))
    for row in session.execute(query).mappings():
        yield as_json(table, dict(row), EXCLUDED_COLUMNS)


def insert_written(session: Session, run: str, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
    """Insert decoded rows into a database without annotations, for a run of any name. Raises UserError if a row does
    not match its table."""
    named = {"run": run} if "run" in table.c else {}
    insert_checked(session, table, [{**row, **named} for row in rows])


VERSION = 1
MANIFEST = "manifest.json"
RUN, STORE = "run/", "database/"
_TOKENIZER = re.compile(r"run/tokenizer/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(?:json|txt|model|jinja)")
TABLES = {f"{STORE}{name}.jsonl": table for name, table in {**RUN_TABLES, **OF_PEOPLE}.items()}
_NAMES = frozenset({f"{RUN}{name}" for name in (RUN_FILE, *SHARED_FILES)} | TABLES.keys())


class Entry(Config):
    """Manifest record of another entry."""

    bytes: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Manifest(Config):
    """The manifest, which is read first."""

    bundle: int
    """Version of the layout."""
    run: RunName
    entries: dict[str, Entry]


def is_known(name: str) -> bool:
    """True if an entry may have this name; known names never leave the target folder."""
    return name in _NAMES or _TOKENIZER.fullmatch(name) is not None


BLOCK = 1 << 20
MEASUREMENTS = MeasurementRecord.__tablename__
PATH_FIELDS = frozenset({"dataset", "labels", "language_model", "text"})
"""Fields of settings and results that may hold a local path. Others, such as prompts, may look like one."""
PATHS = {IndexRecord.__tablename__: "text", EvaluationRecord.__tablename__: "text", ProbeRecord.__tablename__: "labels"}
"""Columns that may contain a local path; only its last component is packed."""


def pack(session: Session, run: Run, out: Path, callbacks: Callbacks) -> int:
    """Write a run, its database rows and annotations into one file. Returns its size in bytes. Raises UserError if the
    file exists, or packing was cancelled; no file is left."""
    if out.exists():
        raise UserError(f"{out} already exists. Choose another file name.")
    unfinished = out.with_name(f".{out.name}.partial")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
                _write(archive, session, run, callbacks)
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
            unfinished.replace(out)
        finally:
            unfinished.unlink(missing_ok=True)
    return out.stat().st_size


def _write(archive: zipfile.ZipFile, session: Session, run: Run, callbacks: Callbacks) -> None:
    record = find_run(session, run.name)
    entries: dict[str, Entry] = {}
    tables = list({**RUN_TABLES, **OF_PEOPLE})
    with TemporaryDirectory() as place:
        folder = run.save_pretrained(Path(place) / "run")
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD_FILE):
            name = RUN + path.relative_to(folder).as_posix()
            if is_known(name):
                with path.open("rb") as file:
                    entries[name] = _add(archive, name, iter(partial(file.read, BLOCK), b""), callbacks)
    of_run = ((name, rows_of_run(session, record, table)) for name, table in RUN_TABLES.items())
    of_people = ((name, rows_of_people(session, run.name, table)) for name, table in OF_PEOPLE.items())
    for done, (name, rows) in enumerate(chain(of_run, of_people), start=1):
        lines = (json.dumps(portable_row(name, row)).encode() + b"\n" for row in rows)
        entries[f"{STORE}{name}.jsonl"] = _add(archive, f"{STORE}{name}.jsonl", lines, callbacks)
        callbacks.on_progress(done, len(tables), name)
    manifest = Manifest(bundle=VERSION, run=run.name, entries=entries)
    archive.writestr(MANIFEST, manifest.model_dump_json(indent=1))


def portable_row(table: str, row: dict[str, object]) -> dict[str, object]:
    """A row of a table without local paths."""
    if table == MEASUREMENTS:
        return {**row, "settings": _without_paths(row["settings"])}
    column = PATHS.get(table)
    if column is None:
        return row
    changed: dict[str, object] = {column: _last_part(str(row[column]))}
    if isinstance(row.get("result"), dict):
        changed["result"] = _without_paths(row["result"])
    if isinstance(row.get("settings"), dict):
        changed["settings"] = _without_paths(row["settings"])
    return {**row, **changed}


def _without_paths(value: object) -> object:
    """Shorten absolute paths to their last component, in path fields at any depth."""
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: _last_part(item) if name in PATH_FIELDS and isinstance(item, str) else _without_paths(item)
        for name, item in value.items()
    }


def _last_part(text: str) -> str:
    return Path(text).name if text.startswith(("/", "~", "./", "../")) and "\n" not in text else text


def _add(archive: zipfile.ZipFile, name: str, blocks: Iterable[bytes], callbacks: Callbacks) -> Entry:
    digest, size = hashlib.sha256(), 0
    with archive.open(name, "w", force_zip64=True) as entry:
        for block in blocks:
            callbacks.check_cancelled("Cancelled; nothing was written.")
            digest.update(block)
            size += len(block)
            entry.write(block)
    return Entry(bytes=size, sha256=digest.hexdigest())
