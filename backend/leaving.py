"""Work that is given up when whoever asked for it has gone: a routing that a newer text has superseded."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

from backend.errors import ClientGoneError

Result = TypeVar("Result")


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of ``work``, which is cancelled when the client of ``request`` closes its connection.

    A handler that is no stream is not told by itself that its client has gone; what waits for the language model would
    be done for nobody, and what the client asked for since would wait behind it. The body must have been read.

    Raises:
        ClientGoneError: the client has gone first.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGoneError("The client has closed its connection.")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
