"""``mxd database``: check, compact and upgrade the database."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.databases import existing_database, existing_url
from mxd.trainer.errors import KEEP_LABELS, UserError

MEGABYTE = 10**6


class CheckDatabase(Command):
    """Check that the database is intact. Nothing is written. Exits with code 1 if something is damaged."""

    examples: ClassVar = (
        "mxd database check",
        "mxd database check --sample 5000",
        "mxd database check --data /data/mxd --json",
    )

    sample: Annotated[int, Field(ge=0)] = 200
    """Random experts per run whose top examples are decoded and compared with their statistics."""

    def run(self) -> int:
        """Print one line per problem."""
        from mxd.backend.database.engine import open_maybe_damaged, reading
        from mxd.backend.database.maintenance.check import check_database

        database = open_maybe_damaged(existing_url(self.settings()))
        with reading(database) as session:
            findings = list(check_database(session, self.sample))
        database.dispose()
        url = database.url.render_as_string()
        advice = f"Index the runs named here again. If SQLite reports damage: {KEEP_LABELS}"
        text = [*findings, advice] if findings else [f"{url} is intact."]
        self.report({"database": url, "findings": findings}, "\n".join(text))
        return int(bool(findings))


class RescueDatabase(Command):
    """Save user data from a damaged SQLite file: labels, notes, tags, lists, sessions and access tokens.

    The damaged file is only read. Afterwards replace it with the new one and index the runs again.
    """

    examples: ClassVar = (
        "mxd database rescue rescued.sqlite",
        "mxd database rescue rescued.sqlite --json",
        "mxd database rescue rescued.sqlite --data /data/mxd --json",
    )

    file: Positional[Path]
    """New SQLite file to write."""

    def run(self) -> int:
        """Copy, and print the number of rows per table."""
        from sqlalchemy.engine import make_url

        from mxd.backend.database.maintenance.rescue import rescue_annotations

        url = make_url(self.settings().database_url)
        if url.get_backend_name() != "sqlite" or not url.database:
            raise UserError("Only SQLite files can be rescued. Restore a backup of the PostgreSQL database.")
        copied = rescue_annotations(Path(url.database), self.file)
        rows = ", ".join(f"{count} {table}" for table, count in copied.items())
        self.report({"file": str(self.file), "copied": copied}, f"Saved to {self.file}: {rows}.")
        return 0


class CompactDatabase(Command):
    """Reclaim the disk space of deleted data. Fails while another process is writing."""

    examples: ClassVar = (
        "mxd database compact",
        "mxd database compact --json",
        "mxd database compact --data /data/mxd",
    )

    def run(self) -> int:
        """Compact, and print the sizes before and after."""
        from mxd.backend.database.maintenance.compact import compact_database

        with existing_database(self.settings()) as database:
            result = compact_database(database)
        before, after = result.bytes_before / MEGABYTE, result.bytes_after / MEGABYTE
        self.report(asdict(result), f"Database size: {before:,.1f} MB before, {after:,.1f} MB after.")
        return 0


class UpgradeDatabase(Command):
    """Upgrade a database written by an earlier version, completely or, on any error, not at all.

    Stop all servers and back up the database first.
    """

    examples: ClassVar = (
        "mxd database upgrade",
        "mxd database upgrade --database postgresql+psycopg://user@host/mxd",
        "mxd database upgrade --data /data/mxd --json",
    )

    def run(self) -> int:
        """Upgrade, and print the versions before and after."""
        from mxd.backend.database.maintenance.upgrade import upgrade_database

        result = upgrade_database(self.settings().database_url)
        text = f"Upgraded the database from version {result.before} to {result.after}."
        if result.before == result.after:
            text = f"The database is up to date (version {result.after}). Nothing was changed."
        self.report(asdict(result), text)
        return 0
