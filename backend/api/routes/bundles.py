"""Download of a run with everything known about it as one file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from mxd.backend.api.dependencies import RunName, ServicesDep
from mxd.backend.database.engine import reading
from mxd.backend.export.bundles.pack import pack
from mxd.backend.queries.runs import find_run
from mxd.trainer.utils.callbacks import NO_CALLBACKS

router = APIRouter(tags=["bundles"])


@router.get("/runs/{run}/bundle", response_class=FileResponse, responses={200: {"content": {"application/zip": {}}}})
def bundle(run: RunName, services: ServicesDep) -> FileResponse:
    """The file of ``mxd pack``, for ``mxd serve``: weights, tokenizer, examples, labels, evaluations."""
    with reading(services.database) as session:
        find_run(session, run)
        with ExitStack() as stack:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="mxd-bundle-")))
            pack(session, services.library.run(run).run, place / f"{run}.mxd", NO_CALLBACKS)
            away = BackgroundTask(stack.pop_all().close)
    return FileResponse(place / f"{run}.mxd", media_type="application/zip", filename=f"{run}.mxd", background=away)
