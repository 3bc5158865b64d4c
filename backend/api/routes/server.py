"""The server itself: sign-in, health, figures and downloads."""

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from sqlalchemy.orm import Session
from starlette.responses import FileResponse

from mxd.backend.api.dependencies import COOKIE, MAX_DOWNLOADS, RunName, ServicesDep, token_from
from mxd.backend.database.annotations import labels_stamp
from mxd.backend.database.engine import reading, size_in_bytes
from mxd.backend.errors import BusyError, NotSignedInError
from mxd.backend.export.bundles.pack import pack
from mxd.backend.inference.run_loader import IMPORT_LOCK
from mxd.backend.queries.automatic_labels import shown_labels_stamp
from mxd.backend.queries.runs import count_examples, find_index, find_run
from mxd.backend.schemas.base import JSON_TYPE, json_response, to_json_bytes
from mxd.backend.schemas.runs import AccessInfo, CurveName, Figure, FigureName, Health, SignInRequest
from mxd.trainer.utils.callbacks import NO_CALLBACKS

router = APIRouter(tags=["server"])
SECONDS_SIGNED_IN = 30 * 24 * 3600


@router.get("/access")
async def access(request: Request, services: ServicesDep) -> AccessInfo:
    """The role of the client."""
    required = services.settings.requires_tokens
    role = await services.authenticator.role(token_from(request.headers)) if required else "write"
    return AccessInfo(tokens_required=required, role=role)


@router.post("/access")
async def sign_in(sent: SignInRequest, request: Request, response: Response, services: ServicesDep) -> AccessInfo:
    """Store a token in a cookie that scripts cannot read and other sites cannot send."""
    role = await services.authenticator.role(sent.token)
    if role is None:
        raise NotSignedInError("Unknown token. Check it for typing errors, or create another with: mxd token create")
    response.set_cookie(
        COOKIE,
        sent.token,
        max_age=SECONDS_SIGNED_IN,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return AccessInfo(tokens_required=services.settings.requires_tokens, role=role)


@router.delete("/access", status_code=204)
def sign_out(response: Response) -> None:
    """Delete the cookie."""
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")


@router.get("/health")
def health(services: ServicesDep) -> Health:
    """Version, database, and language models in memory."""
    with reading(services.database) as session:
        contexts = count_examples(session)
    return Health(
        status="ok",
        version=version("mxd-explorer"),
        database_bytes=size_in_bytes(services.database),
        examples=contexts,
        language_models=services.inference.language_models(),
        command_flags=services.settings.command_flags,
    )


OfRun = Annotated[str | None, Query(max_length=200, description="Name of a run, for figures of a single run.")]

OF_ALL_EXPERTS: tuple[FigureName, ...] = ("density-activation", "density-histogram")
"""Figures that read every expert of a run: of 86,015, they take a second."""


Compared = Annotated[str | None, Query(max_length=200, description="Another run, beside whose curve it is drawn.")]


def _drawn(session: Session, name: FigureName, run: str | None, curve: CurveName, compare: str | None) -> Figure:
    with IMPORT_LOCK:
        from mxd.backend.plots.figures import draw

    return draw(session, name, run, curve, compare)


@router.get("/figures/{name}", response_model=Figure)
def figure(
    name: FigureName,
    services: ServicesDep,
    run: OfRun = None,
    curve: CurveName = "normalized_mse",
    compare: Compared = None,
) -> Response:
    """One figure; the client chooses the colours. `curve` and `compare` are for the figure `training`."""
    with reading(services.database) as session:
        if run is None or name not in OF_ALL_EXPERTS:
            return json_response(_drawn(session, name, run, curve, compare))
        record = find_run(session, run)
        stamp = (
            find_index(session, record).created_at,
            labels_stamp(session, run),
            shown_labels_stamp(session, record.id),
            services.runs.fingerprint(run),
        )
        figure = services.figures.get(
            (name, record.id), stamp, lambda: to_json_bytes(_drawn(session, name, run, curve, compare))
        )
        return Response(figure, media_type=JSON_TYPE)


BUSY_SECONDS = 30.0


def download_folder(run: RunName, services: ServicesDep) -> Iterator[Path]:
    """Yield a folder for a file until it has been sent, or its client has left."""
    with services.reading(run):
        pass
    # Downloads that their clients do not read would fill the disk.
    if not services.downloads.acquire(blocking=False):
        raise BusyError(f"{MAX_DOWNLOADS} downloads are in progress. Try again in a moment.", BUSY_SECONDS)
    try:
        with TemporaryDirectory(prefix="mxd-bundle-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
    finally:
        services.downloads.release()


@router.get("/runs/{run}/bundle", response_class=FileResponse, responses={200: {"content": {"application/zip": {}}}})
def bundle(run: RunName, services: ServicesDep, folder: Annotated[Path, Depends(download_folder)]) -> FileResponse:
    """The file of ``mxd export --format mxd``, for ``mxd serve``: weights, tokenizer, examples, labels, evaluations."""
    path = folder / f"{run}.mxd"
    with reading(services.database) as session:
        pack(session, services.runs.run(run).run, path, NO_CALLBACKS)
    return FileResponse(path, media_type="application/zip", filename=path.name)
