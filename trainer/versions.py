"""Which version a store's tables are of, and bringing older ones up to date.

Whoever owns tables has a chain of versions: a folder of Alembic revisions, whose ids are 1, 2, … and are kept in a
table of their own. A new store gets its tables at once, as the newest revision leaves them; an older one is changed
only when somebody asks for it, by ``mxd store upgrade``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Column, Connection, Engine, MetaData, PrimaryKeyConstraint, String, Table, inspect, select
from sqlalchemy.exc import DatabaseError

from trainer.errors import UserError
from trainer.opening import cannot_open, creating


@dataclass(frozen=True)
class Chain:
    """All that the tables of one owner have been."""

    owner: str
    scripts: Path
    """Folder with Alembic's ``env.py`` and ``versions``."""
    newest: int
    """Version that this program reads and writes."""
    same_in_sqlite: int
    """The first version whose tables in SQLite are those of the newest: such a file needs no upgrade."""

    def oldest(self, database: str) -> int:
        """The first version that can be used as it is, in a database of SQLAlchemy's name."""
        return self.same_in_sqlite if database == "sqlite" else self.newest

    @property
    def table(self) -> Table:
        """Where a store keeps its version; as Alembic makes it."""
        name = f"{self.owner}_version"
        key = PrimaryKeyConstraint("version_num", name=f"{name}_pkc")
        return Table(name, MetaData(), Column("version_num", String(32), nullable=False), key)


def version_of(connection: Connection, chain: Chain) -> int:
    """The version of an owner's tables in a store; 0 where nothing says so."""
    table = chain.table
    if not inspect(connection).has_table(table.name):
        return 0
    return int(connection.scalar(select(table.c.version_num)) or 0)


def prepare(engine: Engine, chain: Chain, make: Callable[[Connection], None]) -> None:
    """See that a store has an owner's tables in the version of this program; ``make`` makes those of a new one.

    Raises:
        UserError: they are of another version, or the store cannot be opened.
    """
    try:
        with engine.connect() as connection:
            found = version_of(connection, chain)
        if not found:
            _make(engine, chain, make)
    except DatabaseError as error:
        raise cannot_open(engine.url, error) from error
    if found:
        check_version(found, chain, engine.dialect.name)


def _make(engine: Engine, chain: Chain, make: Callable[[Connection], None]) -> None:
    with creating(engine) as connection:
        # Asked again: another program may have been first.
        if not version_of(connection, chain):
            make(connection)
            chain.table.create(connection)
            connection.execute(chain.table.insert().values(version_num=str(chain.newest)))


def check_version(found: int, chain: Chain, database: str) -> None:
    """Let only versions pass that can be used as they are in a database of SQLAlchemy's name.

    Raises:
        UserError: ``found`` is older or newer, with what to do.
    """
    if found < chain.oldest(database):
        raise UserError(
            f"The store was written by an earlier version of this program ({_versions(found, chain)}); "
            "make a copy of it, then type: mxd store upgrade"
        )
    if found > chain.newest:
        raise UserError(
            f"The store was written by a later version of this program ({_versions(found, chain)}); "
            "install that one, or name another store with --store."
        )


def _versions(found: int, chain: Chain) -> str:
    return f"its tables are of version {found}, and {chain.newest} is needed"


def upgrade(connection: Connection, chain: Chain) -> None:
    """Bring an owner's tables to the newest version, in the caller's transaction.

    Raises:
        UserError: they are of a later one.
    """
    from alembic import command
    from alembic.config import Config

    check_version(max(version_of(connection, chain), chain.newest), chain, connection.dialect.name)
    config = Config(attributes={"connection": connection, "version_table": chain.table.name})
    # A per cent sign would begin an interpolation.
    config.set_main_option("script_location", str(chain.scripts).replace("%", "%%"))
    command.upgrade(config, "head")
