"""The HTTP API as the tools call it: inside this process, or on a running server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.server.mcpserver.exceptions import ToolError

from mxd.backend.settings import Settings

TIMEOUT_S = 600.0


class Api:
    """Requests to the API. Its errors become errors of the tool, with the same sentence."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, **query: Any) -> Any:
        """Return the answer of an endpoint; parameters that are None are left out."""
        given = {name: value for name, value in query.items() if value is not None}
        return (await self._request("GET", path, params=given)).json()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a body and return the answer."""
        return (await self._request("POST", path, json=dict(body))).json()

    async def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Send a body to an endpoint without an answer."""
        await self._request("PATCH", path, json=dict(body))

    async def events(self, path: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Send a body and return the data of all events of the answer.

        Raises ToolError if the stream ends with an error.
        """
        text = (await self._request("POST", path, json=dict(body))).text
        # Not splitlines(), which also splits at U+2028 and others that JSON does not escape.
        lines = (line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: "))
        events: list[dict[str, Any]] = [json.loads(line) for line in lines]
        if events and events[-1].get("event") == "error":
            raise ToolError(events[-1]["error"]["message"])
        return events

    async def _request(self, method: str, path: str, **more: Any) -> httpx2.Response:
        try:
            response = await self._client.request(method, f"/api{path}", **more)
        except httpx2.TransportError as error:
            raise ToolError(f"The server cannot be reached: {error}. Check --url.") from error
        if response.is_error:
            try:
                message = str(response.json()["error"]["message"])
            except (ValueError, KeyError, TypeError):
                message = f"The server answered with status {response.status_code}. Check --url."
            raise ToolError(message)
        return response


@asynccontextmanager
async def api_in_process(settings: Settings) -> AsyncIterator[Api]:
    """The API on a data folder, without a port.

    Raises UserError if the database cannot be opened.
    """
    from mxd.backend.api.app import create_app

    app = create_app(settings.model_copy(update={"access": "open"}))
    transport = httpx2.ASGITransport(app=app)
    client = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=TIMEOUT_S)
    async with app.router.lifespan_context(app), client:
        yield Api(client)


@asynccontextmanager
async def api_of_server(url: str, token: str) -> AsyncIterator[Api]:
    """The API of a running server; an empty token is not sent."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(base_url=url.rstrip("/"), headers=headers, timeout=TIMEOUT_S) as client:
        yield Api(client)
