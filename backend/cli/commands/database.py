"""``mxd database``, ``mxd token`` and ``mxd remove``: maintenance."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import existing_database, existing_url
from mxd.backend.settings import Role
from mxd.trainer.errors import KEEP_LABELS, NotFoundError, UserError

if TYPE_CHECKING:
    from sqlalchemy import Engine


MEGABYTE = 10**6


class DatabaseCommand(Command):
    """Check, rescue, compact or upgrade the database.

    Check writes nothing, and exits with code 1 if something is damaged. Rescue saves labels, notes, tags, lists,
    sessions and access tokens from a damaged SQLite file, which is only read. Replace it with the new one afterwards,
    and index the runs again. Compact reclaims the disk space of deleted data, and fails while another process is
    writing. Upgrade converts a database written by an earlier version, completely or, on any error, not at all. Stop
    all servers and back up the database first.
    """

    examples: ClassVar = (
        "mxd database check --sample 5000",
        "mxd database rescue rescued.sqlite",
        "mxd database upgrade --database postgresql+psycopg://user@host/mxd",
    )

    action: Positional[Literal["check", "rescue", "compact", "upgrade"]]
    """Task."""
    file: Positional[Path | None] = None
    """With rescue: new SQLite file to write."""
    sample: Annotated[int, Field(ge=0)] = 200
    """With check: random experts per run whose top examples are decoded and compared with their statistics."""

    def run(self) -> int:
        if (self.file is None) == (self.action == "rescue"):
            raise UserError("'mxd database rescue' needs a new file to write, and no other action does.")
        if self.action == "check":
            return self._check()
        if self.file is not None:
            self._rescue(self.file)
        elif self.action == "compact":
            from mxd.backend.database.maintenance import compact_database

            with existing_database(self.settings()) as database:
                result = compact_database(database)
            before, after = result.bytes_before / MEGABYTE, result.bytes_after / MEGABYTE
            self.report(asdict(result), f"Database size: {before:,.1f} MB before, {after:,.1f} MB after.")
        else:
            from mxd.backend.database.maintenance import upgrade_database

            upgraded = upgrade_database(self.settings().database_url)
            changed = [
                f"Upgraded {what} from version {before} to {after}."
                for what, before, after in (
                    ("the database", upgraded.before, upgraded.after),
                    ("the tables of annotations", upgraded.annotations_before, upgraded.annotations_after),
                )
                if before != after
            ]
            current = f"The database is up to date (version {upgraded.after}). Nothing was changed."
            self.report(asdict(upgraded), " ".join(changed) or current)
        return 0

    def _check(self) -> int:
        from mxd.backend.database.engine import open_maybe_damaged, reading
        from mxd.backend.database.maintenance import check_database

        database = open_maybe_damaged(existing_url(self.settings()))
        with reading(database) as session:
            findings = list(check_database(session, self.sample))
        database.dispose()
        url = database.url.render_as_string()
        advice = f"Index the runs named here again. If SQLite reports damage: {KEEP_LABELS}"
        text = [*findings, advice] if findings else [f"{url} is intact."]
        self.report({"database": url, "findings": findings}, "\n".join(text))
        return int(bool(findings))

    def _rescue(self, file: Path) -> None:
        from sqlalchemy.engine import make_url

        from mxd.backend.database.maintenance import rescue_annotations

        url = make_url(self.settings().database_url)
        if url.get_backend_name() != "sqlite" or not url.database:
            raise UserError("Only SQLite files can be rescued. Restore a backup of the PostgreSQL database.")
        copied = rescue_annotations(Path(url.database), file)
        rows = ", ".join(f"{count} {table}" for table, count in copied.items())
        self.report({"file": str(file), "copied": copied}, f"Saved to {file}: {rows}.")


SHOWN_ONCE = "A token is shown only once; the database keeps a hash of it."


class TokenCommand(Command):
    """Create, list or revoke access tokens of a server exposed on the network.

    create: create a token and print it once. list: list the tokens in use, without their secrets. revoke: revoke a
    token; running servers reject it within five seconds.
    """

    examples: ClassVar = (
        "mxd token create --role write --name alice",
        "mxd token list --data /data/mxd --json",
        "mxd token revoke 3",
    )

    action: Positional[Literal["create", "list", "revoke"]]
    """Task."""
    id: Positional[Annotated[int, Field(ge=0, lt=2**31)] | None] = None
    """With revoke: number of the token in 'mxd token list'."""
    role: Role = "read"
    """With create. read: browse, and route within limits. write: also steer, label and delete."""
    name: Annotated[str, Field(min_length=1, max_length=100)] = "unnamed"
    """With create: person or purpose that the token is for."""

    def run(self) -> int:
        from sqlalchemy.orm import Session

        from mxd.backend.database.access_tokens import create_token, revoke_token, tokens
        from mxd.trainer.storage.database.open import writing

        if (self.id is None) == (self.action == "revoke"):
            raise UserError("'mxd token revoke' needs the number of a token, and no other action does.")
        with self.opened() as database:
            if self.action == "create":
                with writing(database) as session:
                    token = create_token(session, self.role, self.name)
                self.report(
                    asdict(token), f"{token.token}\nToken {token.id} ({token.role}) for {token.name}. {SHOWN_ONCE}"
                )
            elif self.id is not None:
                with writing(database) as session:
                    revoke_token(session, self.id)
                self.report({"id": self.id}, f"Revoked token {self.id}.")
            else:
                with Session(database) as session:
                    rows = [
                        {"id": it.id, "role": it.role, "name": it.name, "created_at": it.created_at.isoformat()}
                        for it in tokens(session)
                    ]
                lines = [f"{row['id']}  {row['role']}  {row['name']}  since {row['created_at']}" for row in rows]
                self.report(rows, "\n".join(lines) or "No tokens. Create one with 'mxd token create'.")
        return 0


def create_first_tokens(database: Engine) -> None:
    """Create and print one token of each role if there are none. Called by a server that requires tokens."""
    from mxd.backend.database.access_tokens import count_tokens, create_token
    from mxd.trainer.storage.database.open import writing

    with writing(database) as session:
        created = [] if count_tokens(session) else [create_token(session, role, "first") for role in ("write", "read")]
    if created:
        print("Clients need one of these tokens:", *(f"  {each.role:5}  {each.token}" for each in created), sep="\n")
        print(f"Save them now. {SHOWN_ONCE}", flush=True)


class RemoveCommand(Command):
    """Delete a run: its folder, its metrics and its index. Asks for confirmation."""

    examples: ClassVar = (
        "mxd remove gpt2-l8-k32",
        "mxd remove gpt2-l8-k32 --yes",
        "mxd remove gpt2-l8-k32 --with-labels",
    )

    name: Positional[str]
    """Name of the run."""
    yes: bool = False
    """Delete without asking."""
    with_labels: bool = False
    """Also delete the labels, notes, tags, lists and sessions that users wrote. They cannot be restored."""

    def run(self) -> int:
        from sqlalchemy import select

        from mxd.backend.database.engine import count_written, reading, remove_written
        from mxd.trainer.storage.database.open import writing
        from mxd.trainer.storage.database.tables import RunRecord
        from mxd.trainer.storage.run import run_names
        from mxd.trainer.storage.run_records import remove_run
        from mxd.trainer.utils.display import unknown_run

        data = self.settings().data
        with self.opened() as database:
            with reading(database) as session:
                known = {*run_names(data), *session.scalars(select(RunRecord.name))}
                if self.name not in known:
                    raise NotFoundError(unknown_run(self.name, known))
                written = count_written(session, self.name)
            if written and not self.with_labels:
                raise UserError(
                    f"Run '{self.name}' has {written} user-written labels, notes, tags, lists and sessions. "
                    "Add --with-labels to delete them too."
                )
            if not self.yes:
                if not sys.stdin.isatty():
                    raise UserError(
                        f"Cannot ask whether to delete run '{self.name}'. Add --yes to delete it without asking."
                    )
                kept = f", its index and {written} labels, notes, tags, lists and sessions"
                more = kept if written else " and its index"
                print(f"Delete run '{self.name}'{more}? [y/N] ", end="", file=sys.stderr, flush=True)
                if sys.stdin.readline().strip().lower() not in ("y", "yes"):
                    self.report({"run": self.name, "removed": False}, "Nothing was deleted.")
                    return 1
            remove_run(self.name, data, database)
            with writing(database) as session:
                remove_written(session, self.name)
        self.report({"run": self.name, "removed": True, "labels_and_notes": written}, f"Deleted run '{self.name}'.")
        return 0
