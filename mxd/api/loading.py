"""Runs, their databases and what is stored about their experts, found by name, folder or Hub repo."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload
from urllib.parse import quote

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

import mxd.trainer.experimental  # registers its methods and settings  # noqa: F401
from mxd.backend.database.demo import unpacked_database, writable_demo
from mxd.backend.export.snapshots import origin_of
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.experts import rows_of
from mxd.backend.queries.runs import find_index
from mxd.backend.settings import Settings
from mxd.trainer.analysis.expert import TopExample, example_lines
from mxd.trainer.config.base import SAMPLE
from mxd.trainer.config.steering import Edit, SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.units import with_medians
from mxd.trainer.storage.database.engine import connect, harden_sqlite
from mxd.trainer.storage.database.open import OF_TRAINER, check_foreign_file, check_schema, check_version, read_version
from mxd.trainer.storage.run import RUN_FILE, Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.files import looks_like_path
from mxd.trainer.utils.snapshot import Origin, Snapshot

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
EXPERTS_AT_ONCE = 1024


def find_run(source: str | Path, revision: str | None, data: str | Path | None) -> Run:
    """Find a run by its name, its folder or its Hub repo."""
    folder = data_folder(data)
    is_local = (Path(source).expanduser() / RUN_FILE).is_file()
    if revision is not None or (not is_local and "/" in str(source) and not looks_like_path(str(source))):
        return Run.from_pretrained(source, revision)
    return Run.load(Path(source).expanduser() if is_local else source, folder)


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
    """URL of the database that measurements of a run are written to, see ``database_in``."""
    return database_in(own_data_folder(run), database)


def database_in(data: Path, database: str | None) -> str:
    """URL of ``database``, else of ``MXD_DATABASE``, else of the database in a data folder."""
    return database or Settings(data=data).database_url


def readable_databases(run: Run, database: str | None) -> Iterator[str]:
    """Yield the URLs of the databases that may hold the index of a run. For a run of the demo, the last is the demo's
    own, which is unpacked on first use."""
    yield database_url(run, database)
    if database is None and run.folder.parent.parent.resolve() == SAMPLE.resolve():
        yield unpacked_database(writable_demo())


@contextmanager
def opened_read_only(url: str) -> Iterator[Engine]:
    """Open a database that exists. Nothing is created or written, not even SQLite's temporary files."""
    location = make_url(url)
    is_file = location.get_backend_name() == "sqlite" and location.database
    engine = _sqlite_file(Path(str(location.database))) if is_file else connect(url)
    try:
        with engine.connect() as connection:
            if is_file:
                check_schema(connection, str(location.database))
            check_version(read_version(connection, OF_TRAINER) or OF_TRAINER.newest, OF_TRAINER)
        check_foreign_file(engine)
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
        connection = sqlite3.connect(address, uri=True, check_same_thread=False)
        harden_sqlite(connection)
        return connection

    return create_engine("sqlite://", creator=opened)


# ---------------------------------------------------------------- experts


@dataclass(frozen=True, repr=False)
class Examples(Sequence[TopExample]):
    """Top examples of an expert, largest activation first. Notebooks render them as HTML."""

    run: str
    expert: int
    examples: tuple[TopExample, ...]

    @overload
    def __getitem__(self, index: int) -> TopExample: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TopExample, ...]: ...
    def __getitem__(self, index: int | slice) -> TopExample | tuple[TopExample, ...]:
        return self.examples[index]

    def __len__(self) -> int:
        return len(self.examples)

    def to_pandas(self) -> pd.DataFrame:
        """One row per example: ``activation``, ``token``, ``position``, ``text``, ``tokens`` and ``activations``.
        Raises UserError if pandas is not installed."""
        table = {
            "activation": [it.activation for it in self.examples],
            "token": [it.tokens[it.position] for it in self.examples],
            "position": [it.position for it in self.examples],
            "text": ["".join(it.tokens) for it in self.examples],
            "tokens": [list(it.tokens) for it in self.examples],
            "activations": [list(it.activations) for it in self.examples],
        }
        return _pandas().DataFrame(table)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        shown = [f"  {each.activation:.3g} {each.tokens[each.position]!r}" for each in self.examples[:5]]
        more = ["  ..."] if len(self) > len(shown) else []
        return "\n".join([f"Examples(run={self.run!r}, expert={self.expert}, {len(self)} examples)", *shown, *more])

    def _repr_html_(self) -> str:
        """One line per example, with tokens shaded by activation."""
        largest = max((each.activation for each in self.examples), default=1.0)
        lines = example_lines(self.examples, largest, f"Expert {self.expert}")
        return Snapshot(f"Expert {self.expert}", self.run, [lines])._repr_html_()


def experts_table(run: Run, database: str | None) -> pd.DataFrame:
    """One row per expert of an indexed run, with the columns of exported tables."""
    pandas = _pandas()
    vocabulary = Vocabulary(run.tokenizer)

    def read(session: Session) -> pd.DataFrame:
        record = find_record(session, run.name)
        find_index(session, record)
        parts = (
            range(first, min(first + EXPERTS_AT_ONCE, record.num_experts))
            for first in range(0, record.num_experts, EXPERTS_AT_ONCE)
        )
        found = [rows_of(session, record, part, vocabulary) for part in parts]
        table: pd.DataFrame = pandas.DataFrame([rows[expert].model_dump() for rows in found for expert in sorted(rows)])
        return table

    return read_first(run, database, read)


def read_first(run: Run, database: str | None, read: Callable[[Session], T]) -> T:
    """Result of ``read`` in the first database that has what it reads of the run. Raises NotFoundError if none has."""
    missing = NotFoundError(f"Run '{run.name}' is not indexed.")
    for url in readable_databases(run, database):
        try:
            with opened_read_only(url) as engine, Session(engine) as session:
                return read(session)
        except NotFoundError as error:
            missing = error
    raise missing


def _pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise UserError("Tables need pandas, which is not installed. Run: pip install pandas") from error
    return pandas


def resolve_medians(run: Run, edits: Sequence[Edit]) -> tuple[Edit, ...]:
    """Replace ``median`` in gate tests by the expert's median in units, from the index of ``run``. Without an index,
    edits stay as they are."""
    config = SteeringConfig(prompt="", edits=tuple(edits))
    if any(test.level == "median" for edit in edits if edit.when for test in edit.when.gates):
        for url in readable_databases(run, None):
            with suppress(NotFoundError), opened_read_only(url) as engine, Session(engine) as session:
                config = with_medians(session, config, run.name)
    return config.edits


def origin(
    run: Run, experts: Collection[int], command: Sequence[str], seeds: Mapping[str, int], database: str | None
) -> Origin:
    """Origin with the labels of the first database that has the run; without labels if none has it."""

    def make(session: Session | None) -> Origin:
        return origin_of(session, [run], {run.name: experts}, command, seeds)

    try:
        return read_first(run, database, make)
    except NotFoundError:
        return make(None)
