"""``mxd token``: who may use a server that is bound beyond this machine."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic_settings import CliPositionalArg, CliSubCommand

from backend.commands.base import Command, CommandGroup
from backend.settings import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from backend.access.tokens import NewToken

ONCE = "It is shown this once and kept only as a hash."


class CreateToken(Command):
    """Make a token and print it, once."""

    role: Role = "read"
    """read: browse, and route within limits. write: steer, label, delete, too."""
    name: Annotated[str, Field(min_length=1, max_length=100)] = "unnamed"
    """What or whom it is for."""

    def run(self) -> int:
        """Make it."""
        from backend.access.tokens import create_token
        from trainer.store import writing

        with _opened(self) as store, writing(store) as session:
            made = create_token(session, self.role, self.name)
        self.report(
            {"id": made.id, "role": made.role, "name": made.name, "token": made.token},
            f"{made.token}\nToken {made.id} ({made.role}) for {made.name}. {ONCE}",
        )
        return 0


class ListTokens(Command):
    """List the tokens in use, without what would open anything."""

    def run(self) -> int:
        """Print them."""
        from sqlalchemy.orm import Session

        from backend.access.tokens import tokens

        with _opened(self) as store, Session(store) as session:
            found = [
                {"id": it.id, "role": it.role, "name": it.name, "created_at": it.created_at.isoformat()}
                for it in tokens(session)
            ]
        words = "\n".join(f"{it['id']}  {it['role']}  {it['name']}  since {it['created_at']}" for it in found)
        self.report(found, words or "No tokens yet; mxd token create makes one.")
        return 0


class RevokeToken(Command):
    """Let a token open nothing any more; servers notice within five seconds."""

    id: CliPositionalArg[int]
    """Its number, as mxd token list shows it."""

    def run(self) -> int:
        """Revoke it."""
        from backend.access.tokens import revoke_token
        from trainer.store import writing

        with _opened(self) as store, writing(store) as session:
            revoke_token(session, self.id)
        self.report({"id": self.id}, f"Token {self.id} opens nothing any more.")
        return 0


class TokenCommand(CommandGroup):
    """Tokens of a server that is bound beyond this machine."""

    create: CliSubCommand[CreateToken]
    """make one, and print it once"""
    list: CliSubCommand[ListTokens]
    """those in use"""
    revoke: CliSubCommand[RevokeToken]
    """let one open nothing any more"""


def first_tokens(store: Engine) -> None:
    """Where a server needs tokens and nobody has made one, make one of each role and print them, once."""
    from backend.access.tokens import count_tokens, create_token
    from trainer.store import writing

    with writing(store) as session:
        made = [] if count_tokens(session) else [create_token(session, role, "first") for role in ("write", "read")]
    if made:
        print(_words(made), flush=True)


def _words(made: list[NewToken]) -> str:
    lines = [f"  {it.role:5}  {it.token}" for it in made]
    return "\n".join(["Whoever uses this server needs one of these tokens:", *lines, f"Keep them now. {ONCE}"])


@contextmanager
def _opened(command: Command) -> Iterator[Engine]:
    from backend.database import open_database

    store = open_database(command.settings().store_url)
    try:
        yield store
    finally:
        store.dispose()
