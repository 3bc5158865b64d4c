"""Pages: the built frontend, with index.html for every page URL, and the API documentation, generated from OpenAPI."""

import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

NOT_BUILT = "The front end has not been built yet; run make install, then reload this page."
NOT_BUILT_PAGE = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><title>MxD Explorer</title>"
    f"<p>{NOT_BUILT}</p><p><a href='/docs'>The API</a> works without it.</p></html>"
)

# Encodings of the copies that the build writes beside scripts and style sheets, the smaller first, and their endings.
COMPRESSED = {"br": ".br", "gzip": ".gz"}


class Frontend(Mount):
    """The frontend at ``/``. Unknown addresses and wrong methods of the API are left to the API."""

    def __init__(self, folder: Path) -> None:
        super().__init__("/", app=_Files(folder), name="frontend")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope.get("path", "").startswith("/api/"):
            return Match.NONE, {}
        return super().matches(scope)


class _Files(StaticFiles):
    """Static files of a single-page application, which may be built while the server runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.config_checked = True  # a missing folder is reported per request, not raised
        self.index = folder / "index.html"

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file at ``path``, or index.html for a page."""
        is_page = path == "." or "text/html" in Headers(scope=scope).get("accept", "")
        if not self.index.is_file():
            if "text/html" in Headers(scope=scope).get("accept", ""):
                return HTMLResponse(NOT_BUILT_PAGE, status_code=HTTPStatus.SERVICE_UNAVAILABLE)
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, NOT_BUILT)
        is_lasting = path.startswith("assets/")  # its name has a hash of its content; the build may have compressed it
        encoding = self._encoding(path, scope) if is_lasting else None
        try:
            response = await super().get_response(path + COMPRESSED.get(encoding or "", ""), scope)
        except HTTPException as error:
            if error.status_code != HTTPStatus.NOT_FOUND or not is_page:
                raise
            return FileResponse(self.index, headers={"Cache-Control": "no-cache"})
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_lasting else "no-cache"
        if is_lasting:
            response.headers["Vary"] = "Accept-Encoding"
        if encoding is not None:
            response.headers["Content-Encoding"] = encoding
        return response

    def _encoding(self, path: str, scope: Scope) -> str | None:
        """Return the first encoding of a copy of ``path`` that the client accepts; None if there is none."""
        offers = [offer.replace(" ", "") for offer in Headers(scope=scope).get("accept-encoding", "").split(",")]
        accepted = {offer.partition(";")[0] for offer in offers if not re.search(r";q=0(\.0*)?$", offer)}
        copies = (name for name in COMPRESSED if name in accepted)
        return next((name for name in copies if self.lookup_path(path + COMPRESSED[name])[1] is not None), None)


def docs_page(openapi: Mapping[str, Any]) -> str:
    """Return HTML with every endpoint and every type, without scripts or external resources."""
    source = Path(__file__).with_name("docs.html").read_text("utf-8")
    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(source).render(openapi)
