"""``mxd token``: access tokens of a server exposed on the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, Positional
from mxd.backend.settings import Role

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.database.access_tokens import NewToken

SHOWN_ONCE = "A token is shown only once; the database keeps a hash of it."


class CreateToken(Command):
    """Create an access token and print it once."""

    examples: ClassVar = (
        "mxd token create",
        "mxd token create --role write --name alice",
        "mxd token create --role read --name dashboard --json",
    )

    role: Role = "read"
    """read: browse, and route within limits. write: also steer, label and delete."""
    name: Annotated[str, Field(min_length=1, max_length=100)] = "unnamed"
    """Person or purpose that the token is for."""

    def run(self) -> int:
        """Create the token."""
        from mxd.backend.database.access_tokens import create_token
        from mxd.backend.database.engine import opened
        from mxd.trainer.storage.database.open import writing

        with opened(self.settings().database_url) as database, writing(database) as session:
            token = create_token(session, self.role, self.name)
        self.report(
            {"id": token.id, "role": token.role, "name": token.name, "token": token.token},
            f"{token.token}\nToken {token.id} ({token.role}) for {token.name}. {SHOWN_ONCE}",
        )
        return 0


class ListTokens(Command):
    """List the access tokens in use, without their secrets."""

    examples: ClassVar = ("mxd token list", "mxd token list --json", "mxd token list --data /data/mxd")

    def run(self) -> int:
        """Print one line per token."""
        from sqlalchemy.orm import Session

        from mxd.backend.database.access_tokens import tokens
        from mxd.backend.database.engine import opened

        with opened(self.settings().database_url) as database, Session(database) as session:
            rows = [
                {"id": token.id, "role": token.role, "name": token.name, "created_at": token.created_at.isoformat()}
                for token in tokens(session)
            ]
        text = "\n".join(f"{row['id']}  {row['role']}  {row['name']}  since {row['created_at']}" for row in rows)
        self.report(rows, text or "No tokens. Create one with 'mxd token create'.")
        return 0


class RevokeToken(Command):
    """Revoke an access token. Running servers reject it within five seconds."""

    examples: ClassVar = ("mxd token list", "mxd token revoke 3", "mxd token revoke 3 --data /data/mxd")

    id: Positional[int]
    """Number of the token in 'mxd token list'."""

    def run(self) -> int:
        """Revoke the token."""
        from mxd.backend.database.access_tokens import revoke_token
        from mxd.backend.database.engine import opened
        from mxd.trainer.storage.database.open import writing

        with opened(self.settings().database_url) as database, writing(database) as session:
            revoke_token(session, self.id)
        self.report({"id": self.id}, f"Revoked token {self.id}.")
        return 0


def create_first_tokens(database: Engine) -> None:
    """Create and print one token of each role if there are none. Called by a server that requires tokens."""
    from mxd.backend.database.access_tokens import count_tokens, create_token
    from mxd.trainer.storage.database.open import writing

    with writing(database) as session:
        created = [] if count_tokens(session) else [create_token(session, role, "first") for role in ("write", "read")]
    if created:
        print(_format_tokens(created), flush=True)


def _format_tokens(created: list[NewToken]) -> str:
    lines = [f"  {token.role:5}  {token.token}" for token in created]
    return "\n".join(["Clients need one of these tokens:", *lines, f"Save them now. {SHOWN_ONCE}"])
