"""Download of a run with everything known about it as one file."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from mxd.backend.api.dependencies import RunName, ServicesDep
from mxd.backend.database.engine import reading
from mxd.backend.errors import BusyError
from mxd.backend.export.bundles.pack import pack
from mxd.backend.queries.runs import find_run
from mxd.trainer.utils.callbacks import NO_CALLBACKS

router = APIRouter(tags=["bundles"])

MAX_DOWNLOADS = 4
"""Downloads, each of a file of its own, at the same time."""
BUSY_SECONDS = 30.0


class BundleResponse(FileResponse):
    """A file whose background task also runs if sending it fails."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        background, self.background = self.background, None
        assert background is not None
        try:
            await super().__call__(scope, receive, send)
        finally:
            await background()


@router.get("/runs/{run}/bundle", response_class=FileResponse, responses={200: {"content": {"application/zip": {}}}})
def bundle(run: RunName, services: ServicesDep) -> FileResponse:
    """The file of ``mxd pack``, for ``mxd serve``: weights, tokenizer, examples, labels, evaluations."""
    with reading(services.database) as session:
        find_run(session, run)
    # Downloads that nobody reads would fill the disk.
    if not services.downloads.acquire(blocking=False):
        raise BusyError(f"{MAX_DOWNLOADS} downloads are in progress. Try again in a moment.", BUSY_SECONDS)
    folder = Path(mkdtemp(prefix="mxd-bundle-"))

    def end() -> None:
        rmtree(folder, ignore_errors=True)
        services.downloads.release()

    path = folder / f"{run}.mxd"
    try:
        with reading(services.database) as session:
            pack(session, services.library.run(run).run, path, NO_CALLBACKS)
    except BaseException:
        end()
        raise
    return BundleResponse(path, media_type="application/zip", filename=path.name, background=BackgroundTask(end))
