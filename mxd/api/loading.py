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
from mxd.api.edits import Edits, parse_edits
from mxd.backend.database.demo import unpacked_database, writable_demo
from mxd.backend.export.snapshots import names_in, origin_of, route_command, steer_command
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries.experts import rows_of
from mxd.backend.queries.runs import find_index
from mxd.backend.settings import Settings
from mxd.trainer.analysis.expert import Expert, TopExample, example_lines, load_expert
from mxd.trainer.config import SAMPLE, Edit, SteeringConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.results import SteeredGeneration
from mxd.trainer.inference.routing import route
from mxd.trainer.inference.steering import steer
from mxd.trainer.inference.units import with_medians
from mxd.trainer.language_model.model import LanguageModel
from mxd.trainer.storage.database.engine import connect, harden_sqlite
from mxd.trainer.storage.database.open import (
    CHAIN,
    check_foreign_file,
    check_schema,
    check_version,
    read_version,
)
from mxd.trainer.storage.run import RUN_FILE, Run
from mxd.trainer.storage.run_records import find_record
from mxd.trainer.utils.files import looks_like_path
from mxd.trainer.utils.snapshot import Origin, Snapshot

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")
EXPERTS_AT_ONCE = 1024


def find_run(source: str | Path, revision: str | None, data: str | Path | None) -> Run:
    """Find a run by its name, its folder or its Hub repo. Raises NotFoundError if there is none, UserError if its
    config is damaged, or the Hub cannot be reached."""
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
    """URL of the database that measurements of a run are written to: ``database``, else ``MXD_DATABASE``, else the one
    in the run's data folder."""
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
    """Open a database that exists. Nothing is created or written, not even SQLite's temporary files. Raises
    NotFoundError if it does not exist, or has no index, UserError if it has another version, is damaged, or was not
    made by this program."""
    location = make_url(url)
    is_file = location.get_backend_name() == "sqlite" and location.database
    engine = _sqlite_file(Path(str(location.database))) if is_file else connect(url)
    try:
        with engine.connect() as connection:
            if is_file:
                check_schema(connection, str(location.database))
            check_version(read_version(connection, CHAIN) or CHAIN.newest, CHAIN)
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
        rows = [
            (
                it.activation,
                it.tokens[it.position],
                it.position,
                "".join(it.tokens),
                list(it.tokens),
                list(it.activations),
            )
            for it in self.examples
        ]
        columns = ["activation", "token", "position", "text", "tokens", "activations"]
        return _pandas().DataFrame(rows, columns=columns)  # type: ignore[no-any-return]

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
    """One row per expert of an indexed run, with the columns of exported tables. Raises NotFoundError if the run is not
    indexed, UserError if pandas is not installed."""
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

    return _read_first(run, database, read)


def read_expert(run: Run, expert: int, examples: int, database: str | None) -> Expert:
    """Read an expert with its ``examples`` and the label that the dashboard shows. Raises NotFoundError if the run is
    not indexed, or has no such expert."""

    def read(session: Session) -> Expert:
        label = names_in(session, {run.name: [expert]}).get((run.name, expert))
        return load_expert(session, run, expert, label, examples)

    return _read_first(run, database, read)


def _read_first(run: Run, database: str | None, read: Callable[[Session], T]) -> T:
    """Result of ``read`` in the first database that has the run's index."""
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


def expert_snapshot(run: Run, expert: Expert, examples: int, database: str | None) -> Snapshot:
    """Snapshot of an expert; see ``Layer.show``."""
    command = ["mxd", "experts", run.name, str(expert.expert), "--examples", str(examples)]
    return expert.snapshot(_origin(run, (), command, {}, database))


def routing_snapshot(
    language_model: LanguageModel, run: Run, text: str, k: int | None, database: str | None
) -> Snapshot:
    """Snapshot of the routing of a text; see ``Layer.show``."""
    routing = route(language_model, run, text, k)
    experts = {each.expert for token in routing.tokens for each in token.experts}
    return routing.snapshot(_origin(run, experts, route_command(run.name, text, k), {}, database))


def steering_snapshot(
    language_model: LanguageModel,
    run: Run,
    prompt: str,
    edits: Edits,
    settings: Mapping[str, Any],
    database: str | None,
) -> Snapshot:
    """Snapshot of a steered pair; see ``Layer.show``."""
    parsed = resolve_medians(run, parse_edits(edits))
    config = SteeringConfig.from_keywords({"prompt": prompt, "edits": parsed}, settings)
    generation = SteeredGeneration.collect(run.name, prompt, steer(language_model, [run], config))
    experts = {edit.expert for edit in parsed if edit.run in (None, run.name)}
    seeds = {"sampling": config.sampling.seed}
    return generation.snapshot(parsed, _origin(run, experts, steer_command(run.name, config), seeds, database))


def _origin(
    run: Run, experts: Collection[int], command: Sequence[str], seeds: Mapping[str, int], database: str | None
) -> Origin:
    """Origin with the labels of the first database that has the run; without labels if none has it."""

    def make(session: Session | None) -> Origin:
        return origin_of(session, [run], {run.name: experts}, command, seeds)

    for url in readable_databases(run, database):
        try:
            with opened_read_only(url) as engine, Session(engine) as session:
                return make(session)
        except NotFoundError:
            continue
    return make(None)
