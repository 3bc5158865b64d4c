"""Writing from the server: a few connections of its own, so that waiting writers never block readers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import Engine

from mxd.backend.errors import BusyError
from mxd.trainer.storage.database.engine import ConnectionConfig, connect

WRITERS = 4
"""Requests that write at the same time. SQLite writes one after the other; PostgreSQL may wait for locked rows."""
READ_POOL_SECONDS = 5.0


def reading_connections(statement_seconds: float) -> ConnectionConfig:
    """Return the configuration of the server's connections for reading."""
    return ConnectionConfig(
        pool_seconds=READ_POOL_SECONDS, lock_seconds=READ_POOL_SECONDS, statement_seconds=statement_seconds
    )


class WriteAccess:
    """Lets a few requests write at a time. The others wait without a thread or a connection. ``wait_seconds``: longest
    wait for a turn, and then for a lock of another process."""

    def __init__(self, url: str, wait_seconds: float, statement_seconds: float) -> None:
        self._seconds = wait_seconds
        self._turns = asyncio.Semaphore(WRITERS)
        self._engine = connect(
            url,
            ConnectionConfig(
                pool_size=WRITERS,
                max_overflow=0,
                pool_seconds=wait_seconds,
                lock_seconds=wait_seconds,
                statement_seconds=statement_seconds,
            ),
        )

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Engine]:
        """Yield an engine to write with. Raises BusyError if others have been writing for too long."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._turns.acquire()
        except TimeoutError as error:
            raise BusyError("Others are writing to the database. Try again in a moment.", self._seconds) from error
        try:
            yield self._engine
        finally:
            self._turns.release()

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()
