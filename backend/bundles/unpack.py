"""Reading a bundle that anybody may have made: every name, size, digest and row is checked, and nothing is executed."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.bundles.layout import MANIFEST, RUN, TABLES, VERSION, Manifest, is_known
from backend.bundles.written import OF_PEOPLE, insert_written
from backend.database import opened
from trainer.adoption import adopt
from trainer.errors import NotFoundError, UserError
from trainer.excerpts import insert_rows
from trainer.files import disk_errors, whole_folder, write_whole
from trainer.indexing.search import index_search
from trainer.run import Run
from trainer.store import IndexRecord, RunRecord, sqlite_url, writing

LARGEST_MANIFEST = 1 << 20
LARGEST_LINE = 64 << 20
MOST_GROWTH = 200
"""How many times its packed size an entry may have; what is packed here grows to at most a tenth of that."""
ALWAYS_ALLOWED = 10 << 20
"""Bytes that an entry may have whatever its packed size."""
BLOCK = 1 << 20
OPENED = "bundle.json"
"""In the folder of an opened bundle: its manifest, to tell whether it is the same."""


@dataclass(frozen=True)
class Opened:
    """A data folder with the run of a bundle."""

    folder: Path
    run: str


def unpack(file: Path, folder: Path, language_model: str | None) -> Opened:
    """Make a data folder of a bundle, all at once; one that was made of the same bundle is left as it is.

    Raises:
        NotFoundError: there is no such file.
        UserError: it is no bundle, or damaged, or the folder holds something else.
    """
    if not file.is_file():
        raise NotFoundError(f"There is no file {file}; name a bundle that mxd pack wrote.")
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _manifest(archive, file)
            if _is_opened(folder, manifest):
                return Opened(folder, manifest.run)
            _check(archive, manifest, folder)
            _extract(archive, manifest, folder, language_model)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is no bundle, or it is damaged ({error}); fetch it again.") from error
    return Opened(folder, manifest.run)


def _manifest(archive: zipfile.ZipFile, file: Path) -> Manifest:
    names = archive.namelist()
    if names.count(MANIFEST) != 1 or archive.getinfo(MANIFEST).file_size > LARGEST_MANIFEST:
        raise UserError(f"{file} is no bundle of mxd pack (its manifest is missing or too large).")
    try:
        manifest = Manifest.model_validate_json(archive.read(MANIFEST))
    except (ValidationError, RuntimeError) as error:
        raise UserError(f"The manifest of {file} cannot be read; fetch it again.") from error
    if manifest.bundle != VERSION:
        raise UserError(
            f"{file} is a bundle of version {manifest.bundle}, and this program reads {VERSION}; update it."
        )
    return manifest


def _is_opened(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder was made of this bundle.

    Raises:
        UserError: it holds something else.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return False
    path = folder / OPENED
    if path.is_file() and path.read_text("utf-8") == manifest.model_dump_json():
        return True
    raise UserError(f"{folder} holds something else; name another folder with --into.")


def _check(archive: zipfile.ZipFile, manifest: Manifest, folder: Path) -> None:
    """Names and sizes, before anything is unpacked.

    Raises:
        UserError: an entry may not be in a bundle, or unpacks to more than it says or than there is room for.
    """
    found = [entry for entry in archive.infolist() if entry.filename != MANIFEST]
    names = [entry.filename for entry in found]
    strange = sorted(name for name in names if not is_known(name))
    if strange:
        raise UserError(f"The bundle holds {strange[0][:100]!r}, which no bundle has; nothing was unpacked.")
    if len(set(names)) != len(names) or set(names) != manifest.entries.keys():
        raise UserError("The entries of the bundle are not those that its manifest names; nothing was unpacked.")
    for entry in found:
        said = manifest.entries[entry.filename].bytes
        if entry.file_size != said or said > max(ALWAYS_ALLOWED, MOST_GROWTH * entry.compress_size):
            raise UserError(
                f"{entry.filename} of the bundle unpacks to {entry.file_size:,} bytes; nothing was unpacked."
            )
        if entry.flag_bits & 1:
            raise UserError(f"{entry.filename} of the bundle is encrypted; nothing was unpacked.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = 2 * sum(entry.file_size for entry in found)
    if wanted > shutil.disk_usage(folder.parent).free:
        raise UserError(f"The bundle takes {wanted / 1e9:.1f} GB and the disk has less; make room or name --into.")


def _extract(archive: zipfile.ZipFile, manifest: Manifest, folder: Path, language_model: str | None) -> None:
    with whole_folder(folder) as partial, disk_errors(folder):
        place = partial / "unpacked"
        for name in manifest.entries:
            if name.startswith(RUN):
                _copy(archive, manifest, name, place / name.removeprefix(RUN))
        run = Run.from_pretrained(place)
        with opened(sqlite_url(partial)) as store:
            adopted = adopt(run, manifest.run, language_model, partial, store)
            with writing(store) as session:
                _fill(archive, manifest, session, adopted)
        shutil.rmtree(place)
        write_whole(partial / OPENED, manifest.model_dump_json())


def _copy(archive: zipfile.ZipFile, manifest: Manifest, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with archive.open(name) as entry, target.open("wb") as file:
        while block := entry.read(BLOCK):
            digest.update(block)
            file.write(block)
    _refuse_changed(manifest, name, digest.hexdigest())


def _fill(archive: zipfile.ZipFile, manifest: Manifest, session: Session, run: Run) -> None:
    record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
    for name, table in TABLES.items():
        if name not in manifest.entries:
            continue
        rows = _rows(archive, manifest, name)
        if table.name in OF_PEOPLE:
            insert_written(session, run.name, table, rows)
        else:
            insert_rows(session, record, table, rows)
    if session.get(IndexRecord, record.id) is not None:
        index_search(session, record.id, run.tokenizer)


def _rows(archive: zipfile.ZipFile, manifest: Manifest, name: str) -> Iterator[object]:
    digest = hashlib.sha256()
    with archive.open(name) as entry:
        while line := entry.readline(LARGEST_LINE):
            digest.update(line)
            try:
                yield json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UserError(f"{name} of the bundle is not rows of JSON; fetch it again.") from error
    _refuse_changed(manifest, name, digest.hexdigest())


def _refuse_changed(manifest: Manifest, name: str, digest: str) -> None:
    if manifest.entries[name].sha256 != digest:
        raise UserError(f"{name} of the bundle is not what it was packed as; fetch it again.")
