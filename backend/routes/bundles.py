"""A run with all that is known of it, as one file to take away."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from fastapi import APIRouter
from starlette.background import BackgroundTask
from starlette.responses import FileResponse

from backend.bundles.pack import pack
from backend.database import reading
from backend.queries.runs import find_run
from backend.services import RunName, ServicesDep
from trainer.progress import never, silent

router = APIRouter(tags=["bundles"])


@router.get("/runs/{run}/bundle", response_class=FileResponse, responses={200: {"content": {"application/zip": {}}}})
def bundle(run: RunName, services: ServicesDep) -> FileResponse:
    """The file that ``mxd pack`` writes, for ``mxd open``: weights, tokenizer, contexts, labels, evaluations."""
    with reading(services.store) as session:
        find_run(session, run)
        with ExitStack() as stack:
            place = Path(stack.enter_context(TemporaryDirectory(prefix="mxd-bundle-")))
            pack(session, services.library.run(run).run, place / f"{run}.mxd", silent, never)
            away = BackgroundTask(stack.pop_all().close)
    return FileResponse(place / f"{run}.mxd", media_type="application/zip", filename=f"{run}.mxd", background=away)
