"""Pack a run with its index, labels and results into one .mxd file, atomically, and read such a file; never access
tokens. The bundle that is read is not trusted: every name, size, digest and row is checked, and nothing is executed.

A zip file in which every entry has a known name:

manifest.json              version, run, and size and SHA-256 of every other entry
run/run.json, layer.json, layer.safetensors, units.json, metrics.json, tokenizer/…
database/TABLE.jsonl       database rows, one JSON document per line
"""

import hashlib
import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Annotated, Any

from pydantic import Field, ValidationError
from sqlalchemy import Table, select
from sqlalchemy.orm import Session

from mxd.backend.database.annotations import AccessTokenRecord, ListRecord
from mxd.backend.database.engine import OWN_TABLES, opened
from mxd.backend.queries.runs import find_run
from mxd.trainer.config.base import Config, RunName
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.open import sqlite_url, writing
from mxd.trainer.storage.database.rows import EXCLUDED_COLUMNS as RUN_COLUMNS
from mxd.trainer.storage.database.rows import RUN_TABLES, as_json, from_json, insert_checked, rows_of_run
from mxd.trainer.storage.database.tables import EvaluationRecord, IndexRecord, MeasurementRecord, ProbeRecord, RunRecord
from mxd.trainer.storage.run import CARD_FILE, RUN_FILE, SHARED_FILES, Run
from mxd.trainer.utils.callbacks import Callbacks
from mxd.trainer.utils.files import atomic_directory, atomic_write, disk_errors

OF_PEOPLE = {table.name: table for table in OWN_TABLES if table.name != AccessTokenRecord.__tablename__}
"""Tables of user annotations, in insertion order."""
EXCLUDED_COLUMNS = frozenset({"run"})


def rows_of_people(session: Session, run: str, table: Table) -> Iterator[dict[str, Any]]:
    query = select(table).order_by(*table.primary_key.columns)
    if "run" in table.c:
        query = query.where(table.c.run == run)
    else:
        of_run = select(ListRecord.id).where(ListRecord.run == run)
        query = query.where(table.c.list_id.in_(of_run))
    for row in session.execute(query).mappings():
        yield as_json(table, dict(row), EXCLUDED_COLUMNS)


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
    """Write a run, its database rows and annotations into one file. Returns its size in bytes."""
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
    column = PATHS.get(table)
    shortened: dict[str, object] = {} if column is None else {column: _last_part(str(row[column]))}
    if column is not None or table == MEASUREMENTS:
        shortened |= {name: _without_paths(row[name]) for name in ("result", "settings") if name in row}
    return {**row, **shortened}


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
OPENED = "bundle.json"
"""Copy of the manifest in the folder of an opened bundle, to recognise it."""


def unpack(file: Path, folder: Path, language_model: str | None) -> str:
    """Unpack a bundle into a data folder, atomically, and return the name of its run. An earlier copy is reused."""
    if not file.is_file():
        raise NotFoundError(f"File not found: {file}. Expected a bundle written by 'mxd export --format mxd'.")
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _manifest(archive, file)
            if not _is_opened(folder, manifest):
                _check(archive, manifest, folder)
                _extract(archive, manifest, folder, language_model)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is not a bundle or is damaged ({error}). Download it again.") from error
    return manifest.run


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
    """Check names and sizes before anything is unpacked."""
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
    from mxd.trainer.storage.run_records import adopt  # imports PyTorch

    with atomic_directory(folder) as partial, disk_errors(folder):
        place = partial / "unpacked"
        for name in manifest.entries:
            if name.startswith(RUN):
                _copy_entry(archive, manifest, name, place / name.removeprefix(RUN))
        run = Run.from_pretrained(place)
        with opened(sqlite_url(partial)) as database:
            adopted = adopt(run, manifest.run, language_model, partial, database)
            with writing(database) as session:
                _fill(archive, manifest, session, adopted)
        shutil.rmtree(place)
        atomic_write(partial / OPENED, manifest.model_dump_json())


def _copy_entry(archive: zipfile.ZipFile, manifest: Manifest, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("wb") as file:
        file.writelines(_verified(archive, manifest, name, lambda entry: entry.read(BLOCK)))


def _fill(archive: zipfile.ZipFile, manifest: Manifest, session: Session, run: Run) -> None:
    from mxd.backend.export.bundles.contents import RunContents  # imports PyTorch
    from mxd.trainer.analysis.indexing.build import index_search

    record = session.scalars(select(RunRecord).where(RunRecord.name == run.name)).one()
    contents = RunContents(run.name, record.num_experts)
    for name, table in TABLES.items():
        if name not in manifest.entries:
            continue
        for lines in _batches(archive, manifest, name):
            rows = contents.checked(table.name, _decoded(table, lines))
            own = {"run": run.name} if "run" in table.c else {"run_id": record.id} if "run_id" in table.c else {}
            insert_checked(session, table, [{**row, **own} for row in rows])
    contents.check_complete()
    if session.get(IndexRecord, record.id) is not None:
        index_search(session, record.id, run.tokenizer)


def _decoded(table: Table, lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yield the rows of some lines, one after the other: decoded, they may take far more memory."""
    excluded = EXCLUDED_COLUMNS if table.name in OF_PEOPLE else RUN_COLUMNS
    for line in lines:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{STORE}{table.name}.jsonl in the bundle is not JSON lines. Download it again.") from error
        yield from_json(table, document, excluded)


def _batches(archive: zipfile.ZipFile, manifest: Manifest, name: str) -> Iterator[list[bytes]]:
    size, batch = 0, list[bytes]()
    for line in _verified(archive, manifest, name, lambda entry: entry.readline(LARGEST_LINE)):
        size += len(line)
        batch.append(line)
        if len(batch) == BATCH_ROWS or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _verified(
    archive: zipfile.ZipFile, manifest: Manifest, name: str, read: Callable[[IO[bytes]], bytes]
) -> Iterator[bytes]:
    """Yield the parts of an entry. Raises UserError at the end if they do not match the checksum of the manifest."""
    digest = hashlib.sha256()
    with archive.open(name) as entry:
        while part := read(entry):
            digest.update(part)
            yield part
    if manifest.entries[name].sha256 != digest.hexdigest():
        raise UserError(f"{name} in the bundle does not match its checksum. Download it again.")
