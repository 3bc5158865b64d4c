"""Errors that a browser reports during a test."""

from __future__ import annotations

from playwright.sync_api import BrowserContext, ConsoleMessage, Request, Response, WebError

GIVEN_UP = "net::ERR_ABORTED"
"""How a request ends that the page itself has ended: by leaving, or by stopping a generation."""


class Watch:
    """Errors and warnings on the console, what was thrown, and requests that failed, on all pages of a context.

    A violation of the content security policy is an error on the console.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.complaints: list[str] = []
        context.on("console", self._on_console)
        context.on("weberror", self._on_error)
        context.on("requestfailed", self._on_failure)
        context.on("response", self._on_response)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} ({message.location.get('url')})")

    def _on_error(self, error: WebError) -> None:
        self.complaints.append(f"thrown: {error.error}")

    def _on_failure(self, request: Request) -> None:
        if request.failure != GIVEN_UP:
            self.complaints.append(f"failed: {request.method} {request.url}: {request.failure}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"refused: {response.status} {response.url}")
