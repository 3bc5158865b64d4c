"""Writing a bundle, all at once."""

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

from backend.bundles.layout import MANIFEST, RUN, STORE, VERSION, Entry, Manifest, is_known
from backend.bundles.written import OF_PEOPLE, rows_of_people
from backend.queries.runs import find_run
from trainer.errors import UserError
from trainer.excerpts import OF_RUNS, rows_of_run
from trainer.files import disk_errors
from trainer.progress import Progress, ShouldStop
from trainer.run import CARD_FILE, Run
from trainer.store import EvaluationRecord, IndexRecord, ProbeRecord

BLOCK = 1 << 20
PATHS = {IndexRecord.__tablename__: "text", EvaluationRecord.__tablename__: "text", ProbeRecord.__tablename__: "labels"}
"""Columns that may name a folder of this machine; only its last part goes along."""


def pack(session: Session, run: Run, out: Path, progress: Progress, should_stop: ShouldStop) -> int:
    """Write a run, what the store holds of it and what people wrote into one file. Returns its size in bytes.

    Raises:
        UserError: there is such a file, or it was stopped; nothing is left then.
    """
    if out.exists():
        raise UserError(f"{out} exists; name another file with --out.")
    partial = out.with_name(f".{out.name}.partial")
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        try:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
                _write(archive, session, run, progress, should_stop)
            with partial.open("rb") as file:
                os.fsync(file.fileno())
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)
    return out.stat().st_size


def _write(archive: zipfile.ZipFile, session: Session, run: Run, progress: Progress, should_stop: ShouldStop) -> None:
    record = find_run(session, run.name)
    entries: dict[str, Entry] = {}
    tables = list({**OF_RUNS, **OF_PEOPLE})
    with TemporaryDirectory() as place:
        folder = run.save_pretrained(Path(place) / "run")
        for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CARD_FILE):
            name = RUN + path.relative_to(folder).as_posix()
            if is_known(name):
                entries[name] = _add(archive, name, _blocks(path), should_stop)
    of_run = ((name, rows_of_run(session, record, table)) for name, table in OF_RUNS.items())
    of_people = ((name, rows_of_people(session, run.name, table)) for name, table in OF_PEOPLE.items())
    for done, (name, rows) in enumerate(chain(of_run, of_people), start=1):
        lines = (json.dumps(portable_row(name, row)).encode() + b"\n" for row in rows)
        entries[f"{STORE}{name}.jsonl"] = _add(archive, f"{STORE}{name}.jsonl", lines, should_stop)
        progress(done, len(tables), name)
    manifest = Manifest(bundle=VERSION, run=run.name, entries=entries)
    archive.writestr(MANIFEST, manifest.model_dump_json(indent=1))


def portable_row(table: str, row: dict[str, object]) -> dict[str, object]:
    """A row of a table without the folders of this machine."""
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
    """The same with whole paths cut to their last parts, however deep they are."""
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


def _add(archive: zipfile.ZipFile, name: str, blocks: Iterable[bytes], should_stop: ShouldStop) -> Entry:
    digest, size = hashlib.sha256(), 0
    with archive.open(name, "w", force_zip64=True) as entry:
        for block in blocks:
            if should_stop():
                raise UserError("stopped; nothing was written")
            digest.update(block)
            size += len(block)
            entry.write(block)
    return Entry(bytes=size, sha256=digest.hexdigest())
