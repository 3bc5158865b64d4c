"""Finding runs and their databases by name, folder, environment variable or Hub repo."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url

from mxd.api.layer import Layer, MxD, Transcoder
from mxd.backend.cli.commands.demo import unpacked_database, writable_demo
from mxd.backend.settings import Settings
from mxd.trainer.config import SAMPLE
from mxd.trainer.errors import NotFoundError
from mxd.trainer.storage.database.engine import connect
from mxd.trainer.storage.database.migrations import CHAIN
from mxd.trainer.storage.database.open import sqlite_url
from mxd.trainer.storage.database.versions import check_version, read_version
from mxd.trainer.storage.run import RUN_FILE, Run
from mxd.trainer.utils.hub import looks_like_path


def load(
    source: str | Path, *, revision: str | None = None, data: str | Path | None = None
) -> MxD | Transcoder | Layer:
    """Load a trained layer of any kind; arguments and errors as ``MxD.from_pretrained``.

    >>> layer = mxd.load("my-run")
    >>> type(layer).__name__, layer.layer, layer.config.k
    ('MxD', 1, 4)
    """
    run = find_run(source, revision, data)
    kinds: tuple[type[Layer], ...] = (MxD, Transcoder)
    return next((kind for kind in kinds if isinstance(run.layer, kind.core_class)), Layer)(run)


def find_run(source: str | Path, revision: str | None, data: str | Path | None) -> Run:
    """Find a run by its name, its folder or its Hub repo.

    Raises:
        NotFoundError: there is none.
        UserError: its config is damaged, or the Hub cannot be reached.
    """
    folder = data_folder(data)
    is_local = (Path(source).expanduser() / RUN_FILE).is_file()
    if not is_local and "/" in str(source) and not looks_like_path(str(source)):
        return Run.from_pretrained(source, revision)
    return Run.load(Path(source).expanduser() if is_local else source, folder)


def as_layer(run: Layer | Run | str | Path) -> Layer:
    """Return the layer of a run that is given as an object, a name or a folder."""
    if isinstance(run, Layer):
        return run
    return Layer(run) if isinstance(run, Run) else load(run)


# ---------------------------------------------------------------- folders and databases


def data_folder(data: str | Path | None) -> Path:
    """Return ``data``, else ``MXD_DATA``, else ``data`` in the working folder."""
    return Settings().data if data is None else Path(data).expanduser()


def own_data_folder(run: Run) -> Path:
    """Data folder that a run is in; the default one for a run of the demo, the Hub's cache or another folder."""
    folder = run.folder.parent.parent
    is_own = run.folder.parent.name == "runs" and folder.resolve() != SAMPLE.resolve()
    return folder if is_own else data_folder(None)


def database_url(run: Run, database: str | None) -> str:
    """URL of the database that measurements of a run are written to: ``database``, else ``MXD_DATABASE``, else the one
    in the run's data folder."""
    return database or Settings().database or sqlite_url(own_data_folder(run))


def readable_databases(run: Run, database: str | None) -> Iterator[str]:
    """Yield the URLs of the databases that may hold the index of a run. For a run of the demo, the last is the demo's
    own, which is unpacked on first use."""
    yield database_url(run, database)
    if database is None and run.folder.parent.parent.resolve() == SAMPLE.resolve():
        yield unpacked_database(writable_demo())


@contextmanager
def opened_read_only(url: str) -> Iterator[Engine]:
    """Open a database that exists. Nothing is created or written, not even SQLite's temporary files.

    Raises:
        NotFoundError: it does not exist, or has no index.
        UserError: it has another version.
    """
    location = make_url(url)
    is_file = location.get_backend_name() == "sqlite" and location.database
    engine = _sqlite_file(Path(str(location.database))) if is_file else connect(url)
    try:
        with engine.connect() as connection:
            check_version(read_version(connection, CHAIN) or CHAIN.newest, CHAIN)
        yield engine
    finally:
        engine.dispose()


def _sqlite_file(path: Path) -> Engine:
    if not path.is_file():
        raise NotFoundError(f"No database at {path}. Index the run first, with mxd.index or 'mxd index'.")
    # A read-only connection creates -wal and -shm files unless the file is declared immutable.
    state = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    address = f"file:{quote(str(path.resolve()))}?{state}"

    def opened() -> Any:
        return sqlite3.connect(address, uri=True, check_same_thread=False)

    return create_engine("sqlite://", creator=opened)
