"""Databases that commands read without creating one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mxd.trainer.errors import NotFoundError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.settings import Settings


@contextmanager
def existing_database(settings: Settings) -> Iterator[Engine]:
    """Open the database of the settings; a missing one is not created.

    Raises:
        NotFoundError: there is no database.
        UserError: the database cannot be opened.
    """
    from mxd.backend.database.engine import opened

    with opened(existing_url(settings)) as database:
        yield database


def existing_url(settings: Settings) -> str:
    """Return the URL of the settings' database.

    Raises:
        NotFoundError: it is a file that does not exist.
    """
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(settings.database_url)
    except ArgumentError:
        url = None  # opening it reports the error
    if url is not None and url.get_backend_name() == "sqlite" and url.database and not Path(url.database).is_file():
        raise NotFoundError(
            f"No database at {url.database}. Train and index a run first, or choose another folder with --data."
        )
    return settings.database_url
