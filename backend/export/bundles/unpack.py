"""Read an untrusted bundle: every name, size, digest and row is checked, and nothing is executed."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from mxd.backend.database.engine import opened
from mxd.backend.export.bundles.contents import RunContents
from mxd.backend.export.bundles.pack import EXCLUDED_COLUMNS as PEOPLE_COLUMNS
from mxd.backend.export.bundles.pack import (
    MANIFEST,
    OF_PEOPLE,
    RUN,
    STORE,
    TABLES,
    VERSION,
    Manifest,
    insert_written,
    is_known,
)
from mxd.trainer.analysis.indexing.build import index_search
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.rows import EXCLUDED_COLUMNS as RUN_COLUMNS
from mxd.trainer.storage.database.rows import from_json, insert_checked
from mxd.trainer.storage.database.tables import IndexRecord, RunRecord
from mxd.trainer.storage.run import Run
from mxd.trainer.storage.run_records import adopt
from mxd.trainer.utils.files import atomic_directory, atomic_write, disk_errors

LARGEST_MANIFEST = 1 << 20
LARGEST_JSON = 64 << 20
"""Bytes of a JSON file of the run or of its tokenizer, which is parsed as a whole."""
LARGEST_LINE = 4 << 20
"""Bytes of a row. The longest row that is written has the 65,536 active tokens of an example."""
MOST_GROWTH = 20
"""Largest expansion of the whole bundle; packing compresses at most tenfold."""
ALWAYS_ALLOWED = 32 << 20
"""Bytes that a bundle may have whatever its packed size."""
BATCH_ROWS, BATCH_BYTES = 2000, 4 << 20
"""Rows are inserted when either is reached, which bounds memory."""
BLOCK = 1 << 20
OPENED = "bundle.json"
"""Copy of the manifest in the folder of an opened bundle, to recognise it."""


@dataclass(frozen=True)
class Opened:
    """A data folder with the run of a bundle."""

    folder: Path
    run: str


def unpack(file: Path, folder: Path, language_model: str | None) -> Opened:
    """Unpack a bundle into a data folder, atomically; an earlier copy of the same bundle is reused. Raises
    NotFoundError if the file does not exist, UserError if the file is not a bundle or is damaged, or the folder
    contains something else."""
    if not file.is_file():
        raise NotFoundError(f"File not found: {file}. Expected a bundle written by 'mxd export --format mxd'.")
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _manifest(archive, file)
            if _is_opened(folder, manifest):
                return Opened(folder, manifest.run)
            _check(archive, manifest, folder)
            _extract(archive, manifest, folder, language_model)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not a bundle or is damaged ({error}). Download it again.") from error
    return Opened(folder, manifest.run)


def _manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    names = archive.namelist()
    if names.count(MANIFEST) != 1 or archive.getinfo(MANIFEST).file_size > LARGEST_MANIFEST:
        raise UserError(f"{file} is not a bundle of 'mxd export --format mxd': its manifest is missing or too large.")
    try:
        manifest = Manifest.model_validate_json(archive.read(MANIFEST))
    except (ValidationError, RuntimeError) as error:
        raise UserError(f"The manifest of {file} cannot be read. Download the file again.") from error
    if manifest.bundle != VERSION:
        raise UserError(
            f"{file} has bundle version {manifest.bundle}, but this program reads {VERSION}. Update mxd-explorer."
        )
    return manifest


def _is_opened(folder: Path, manifest: Manifest) -> bool:
    """True if the folder was unpacked from this bundle. Raises UserError if it contains something else."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    path = folder / OPENED
    if path.is_file() and path.read_text("utf-8") == manifest.model_dump_json():
        return True
    raise UserError(f"{folder} contains something else. Choose another folder.")


def _check(archive: zipfile.ZipFile, manifest: Manifest, folder: Path) -> None:
    """Check names and sizes before anything is unpacked. Raises UserError if an entry is not allowed, or expands beyond
    its stated size or the free disk space."""
    entries = [entry for entry in archive.infolist() if entry.filename != MANIFEST]
    names = [entry.filename for entry in entries]
    strange = sorted(name for name in names if not is_known(name))
    if strange:
        raise UserError(f"The bundle contains an unknown entry: {strange[0][:100]!r}. Nothing was unpacked.")
    if len(set(names)) != len(names) or set(names) != manifest.entries.keys():
        raise UserError("The bundle's entries do not match its manifest. Nothing was unpacked.")
    for entry in entries:
        largest = LARGEST_JSON if entry.filename.endswith(".json") else entry.file_size
        if entry.file_size != manifest.entries[entry.filename].bytes or entry.file_size > largest:
            raise UserError(
                f"{entry.filename} in the bundle would expand to {entry.file_size:,} bytes. Nothing was unpacked."
            )
        if entry.flag_bits & 1:
            raise UserError(f"{entry.filename} in the bundle is encrypted. Nothing was unpacked.")
    total_bytes = sum(entry.file_size for entry in entries)
    if total_bytes > max(ALWAYS_ALLOWED, MOST_GROWTH * sum(entry.compress_size for entry in entries)):
        raise UserError(f"The bundle would expand to {total_bytes:,} bytes. Nothing was unpacked.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    needed_bytes = 2 * total_bytes
    if needed_bytes > shutil.disk_usage(folder.parent).free:
        raise UserError(
            f"The bundle needs {needed_bytes / 1e9:.1f} GB, more than the disk has. "
            "Free space, or choose another folder."
        )


def _extract(archive: zipfile.ZipFile, manifest: Manifest, folder: Path, language_model: str | None) -> None:
    with atomic_directory(folder) as partial, disk_errors(folder):
        place = partial / "unpacked"
        for name in manifest.entries:
            if name.startswith(RUN):
                _copy(archive, manifest, name, place / name.removeprefix(RUN))
        run = Run.from_pretrained(place)
        with opened(sqlite_url(partial)) as database:
            adopted = adopt(run, manifest.run, language_model, partial, database)
            with writing(database) as session:
                _fill(archive, manifest, session, adopted)
        shutil.rmtree(place)
        atomic_write(partial / OPENED, manifest.model_dump_json())


def _copy(archive: zipfile.ZipFile, manifest: Manifest, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with archive.open(name) as entry, target.open("wb") as file:
        while block := entry.read(BLOCK):
            digest.update(block)
            file.write(block)
    _check_digest(manifest, name, digest.hexdigest())


def _fill(archive: zipfile.ZipFile, manifest: Manifest, session: Session, run: Run) -> None:
    record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
    contents = RunContents(run.name, record.num_experts)
    for name, table in TABLES.items():
        if name not in manifest.entries:
            continue
        for lines in _batches(archive, manifest, name):
            rows = contents.checked(table.name, _decoded(table, lines))
            if table.name in OF_PEOPLE:
                insert_written(session, run.name, table, rows)
            else:
                insert_checked(session, table, [{**row, "run_id": record.id} for row in rows])
    contents.check_complete()
    if session.get(IndexRecord, record.id) is not None:
        index_search(session, record.id, run.tokenizer)


def _decoded(table: Table, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows of some lines, one after the other: decoded, they may take far more memory."""
    excluded = PEOPLE_COLUMNS if table.name in OF_PEOPLE else RUN_COLUMNS
    for line in lines:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{STORE}{table.name}.jsonl in the bundle is not JSON lines. Download it again.") from error
        yield from_json(table, document, excluded)


def _batches(archive: zipfile.ZipFile, manifest: Manifest, name: str) -> Iterator[list[bytes]]:
    digest, size = hashlib.sha256(), 0
    batch: list[bytes] = []
    with archive.open(name) as entry:
        while line := entry.readline(LARGEST_LINE):
            digest.update(line)
            size += len(line)
            batch.append(line)
            if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    _check_digest(manifest, name, digest.hexdigest())
    if batch:
        yield batch


def _check_digest(manifest: Manifest, name: str, digest: str) -> None:
    if manifest.entries[name].sha256 != digest:
        raise UserError(f"{name} in the bundle does not match its checksum. Download it again.")
