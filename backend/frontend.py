"""The built front end, served by the same process: files as they are, and index.html for every address of a page."""

from __future__ import annotations

from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

NOT_BUILT = "The front end has not been built yet; run make install, then reload this page."
NOT_BUILT_PAGE = (
    "<!doctype html><html lang='en'><meta charset='utf-8'><title>MxD Explorer</title>"
    f"<p>{NOT_BUILT}</p><p><a href='/docs'>The API</a> works without it.</p></html>"
)
API_PREFIX = "api/"


class FrontEnd(StaticFiles):
    """Static files of a single-page application, which may be built while the server runs."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)
        self.index = folder / "index.html"

    async def get_response(self, path: str, scope: Scope) -> Response:
        """The file at ``path``, or the page that index.html makes of it.

        Raises:
            HTTPException: 404 where there is neither, 503 where the front end has not been built.
        """
        is_page = "text/html" in Headers(scope=scope).get("accept", "")
        if path.startswith(API_PREFIX):
            raise HTTPException(404, f"There is no /{path}; see /docs.")
        if not self.index.is_file():
            if is_page:
                return HTMLResponse(NOT_BUILT_PAGE, status_code=503)
            raise HTTPException(503, NOT_BUILT)
        file, found = self.lookup_path(path)
        if found is not None and Path(file).is_file():
            response = await super().get_response(path, scope)
            if path.startswith("assets/"):
                # Their names carry a hash of what is in them.
                response.headers["Cache-Control"] = "public, max-age=31536000, immutable"
            return response
        if path != "." and not is_page:
            raise HTTPException(404, f"There is no /{path}.")
        return FileResponse(self.index, headers={"Cache-Control": "no-cache"})
