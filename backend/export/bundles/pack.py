"""Write a bundle, atomically."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.orm import Session

from mxd.backend.export.bundles.annotations import OF_PEOPLE, rows_of_people
from mxd.backend.export.bundles.manifest import MANIFEST, RUN, STORE, VERSION, Entry, Manifest, is_known
from mxd.backend.queries.runs import find_run
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.rows import RUN_TABLES, rows_of_run
from mxd.trainer.storage.database.tables import EvaluationRecord, IndexRecord, MeasurementRecord, ProbeRecord
from mxd.trainer.storage.run import CARD_FILE, Run
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import disk_errors

BLOCK = 1 << 20
MEASUREMENTS = MeasurementRecord.__tablename__
PATHS = {IndexRecord.__tablename__: "text", EvaluationRecord.__tablename__: "text", ProbeRecord.__tablename__: "labels"}
"""Columns that may contain a local path; only its last component is packed."""


def pack(session: Session, run: Run, out: Path, callbacks: Callbacks) -> int:
    """Write a run, its database rows and annotations into one file. Returns its size in bytes.

    Raises:
        UserError: the file exists, or packing was cancelled; no file is left.
    """
    if out.exists():
        raise UserError(f"{out} already exists. Choose another file with --out.")
    partial = out.with_name(f".{out.name}.partial")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
                _write(archive, session, run, callbacks)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)
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
                entries[name] = _add(archive, name, _blocks(path), callbacks)
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
    """Shorten absolute paths to their last component, at any depth."""
    if isinstance(value, dict):
        return {name: _without_paths(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    return _last_part(value) if isinstance(value, str) else value


def _last_part(text: str) -> str:
    return Path(text).name if text.startswith(("/", "~", "./", "../")) and "\n" not in text else text


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


def _add(archive: zipfile.ZipFile, name: str, blocks: Iterable[bytes], callbacks: Callbacks) -> Entry:
    digest, size = hashlib.sha256(), 0
    with archive.open(name, "w", force_zip64=True) as entry:
        for block in blocks:
            callbacks.check_cancelled("Cancelled; nothing was written.")
            digest.update(block)
            size += len(block)
            entry.write(block)
    return Entry(bytes=size, sha256=digest.hexdigest())
