"""Upgrade of a database written by an older version: complete, or rolled back."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import DatabaseError

from mxd.backend.database import migrations as backend_migrations
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.engine import cannot_open, connect, schema_transaction
from mxd.trainer.storage.database.open import CHAIN, read_version, upgrade

CHAINS = (CHAIN, backend_migrations.CHAIN)


@dataclass(frozen=True)
class UpgradeResult:
    """Schema versions of the trainer's tables."""

    before: int
    after: int


def upgrade_database(url: str) -> UpgradeResult:
    """Upgrade the database at an SQLAlchemy ``url`` in one transaction.

    Raises:
        UserError: the database has a newer version, is damaged or read-only.
        NotFoundError: there is no database.
    """
    engine = connect(url)
    try:
        _check_exists(engine)
        if engine.dialect.name == "sqlite":
            # Alembic's batch mode drops and recreates a table. With foreign keys on, dependent rows would be deleted.
            event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA foreign_keys = OFF"))
        with schema_transaction(engine) as connection:
            return _upgrade(connection)
    except DatabaseError as error:
        raise cannot_open(engine.url, error) from error
    finally:
        engine.dispose()


def _check_exists(engine: Engine) -> None:
    if engine.dialect.name == "sqlite" and not Path(engine.url.database or "").is_file():
        location = engine.url.render_as_string()
        raise NotFoundError(f"No database at {location}. Choose one with --database or --data.")


def _upgrade(connection: Connection) -> UpgradeResult:
    before = read_version(connection, CHAIN)
    if all(read_version(connection, chain) == chain.newest for chain in CHAINS):
        return UpgradeResult(before, before)
    for chain in CHAINS:
        upgrade(connection, chain)
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise UserError(
            "The database was not changed: some rows refer to rows that do not exist. "
            "Run 'mxd database check' with the version that wrote it."
        )
    return UpgradeResult(before, read_version(connection, CHAIN))
