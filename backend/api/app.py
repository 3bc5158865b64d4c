"""Create the FastAPI application from the settings: the API, its documentation, and the built frontend, with index.html
for every page URL. There are no globals, so tests can create many."""

import re
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from jinja2 import Environment
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Match, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

import mxd.trainer.experimental  # registers its methods and settings  # noqa: F401
from mxd.backend import errors
from mxd.backend.api.dependencies import AuthMiddleware, Services
from mxd.backend.api.middleware import (
    SECURITY_HEADERS,
    BodyLimitMiddleware,
    Metrics,
    MetricsMiddleware,
    SecurityHeadersMiddleware,
)
from mxd.backend.api.routes import experts, openai, routing, runs, server, snapshots, steering
from mxd.backend.database.annotations import SHOWN_ONCE, create_token, tokens
from mxd.backend.database.engine import size_in_bytes
from mxd.backend.schemas.base import ErrorBody, ErrorResponse
from mxd.backend.settings import Settings
from mxd.trainer.errors import UserError
from mxd.trainer.storage.database.open import writing

MINIMUM_TO_COMPRESS = 1024
COMPRESSION_LEVEL = 1
PROBLEMS_NAMED = 3
DEFAULT_BODY_BYTES: int = Settings.model_fields["body_bytes"].default


def create_app(settings: Settings) -> FastAPI:
    """Create the server's application. The database is opened here, so that its errors appear at start-up."""
    services = Services(settings)
    app = build_api(services.metrics, settings.body_bytes)
    app.state.services = services
    app.router.routes.append(Frontend(settings.frontend))
    return app


OTHERS = 0o077
"""Permissions of everybody but the owner."""


def create_protected_app(settings: Settings) -> FastAPI:
    """Create the application. If it requires tokens, only the owner can read its folder, and first tokens are printed:
    one of each role if there are none. Raises UserError if the database cannot be opened."""
    if not settings.requires_tokens:
        return create_app(settings)
    _protect_folder(settings.data)
    application = create_app(settings)
    with writing(application.state.services.database) as session:
        created = [] if tokens(session) else [create_token(session, role, "first") for role in ("write", "read")]
    if created:
        print("Clients need one of these tokens:", *(f"  {each.role:5}  {each.token}" for each in created), sep="\n")
        print(f"Save them now. {SHOWN_ONCE}", flush=True)
    return application


def _protect_folder(data: Path) -> None:
    """Let only the owner of the data folder read it, because tokens protect nothing that others can read as files."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = stat.S_IMODE(data.stat().st_mode)
    if not mode & OTHERS:
        return
    warning = f"only you can read {data} from now on, because this server requires tokens."
    try:
        data.chmod(mode & ~OTHERS)
    except OSError:  # another user's folder, or a read-only file system
        warning = f"other users of this machine may read {data}. Ask its owner to run: chmod 700 {data}"
    print(f"mxd: {warning}", file=sys.stderr, flush=True)


def build_api(metrics: Metrics | None = None, body_bytes: int = DEFAULT_BODY_BYTES) -> FastAPI:
    """Create the application without services, which is enough for its OpenAPI schema."""
    app = FastAPI(
        title="MxD Explorer",
        description="Browse the experts of trained layers, route text through them, steer generation with them.",
        version=version("mxd-explorer"),
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        generate_unique_id_function=lambda route: route.name,
        responses={
            "4XX": {"model": ErrorResponse, "description": "The request cannot be served; the message says why."},
            "5XX": {"model": ErrorResponse, "description": "The server cannot answer now."},
        },
    )
    described = (server.router, runs.router, runs.measurements, experts.router, experts.of_users, routing.router)
    for router in (*described, steering.router, snapshots.router, experts.of_all_runs):
        app.include_router(router, prefix="/api")
    app.include_router(openai.router)
    app.add_api_route("/docs", lambda: docs_page(app.openapi()), include_in_schema=False, response_class=HTMLResponse)

    def metrics_page(request: Request) -> Response:
        services: Services = request.app.state.services
        services.metrics.inference.set(services.inference.num_active)
        services.metrics.database.set(size_in_bytes(services.database))
        return Response(generate_latest(services.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    app.add_api_route("/metrics", metrics_page, include_in_schema=False, response_class=Response)
    app.add_api_route("/healthz", lambda: "ok", include_in_schema=False, response_class=PlainTextResponse)
    for known in (UserError, errors.Coded, DBAPIError, PoolTimeoutError):
        app.add_exception_handler(known, lambda _, error: errors.response_to(error))
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    # This response bypasses all middleware.
    app.add_exception_handler(
        Exception, lambda _request, _error: errors.error_response(500, errors.INTERNAL_BODY, SECURITY_HEADERS)
    )
    app.add_middleware(GZipMiddleware, minimum_size=MINIMUM_TO_COMPRESS, compresslevel=COMPRESSION_LEVEL)
    # From the inside out: the token is checked before the body is read.
    app.add_middleware(BodyLimitMiddleware, most_bytes=body_bytes)
    app.add_middleware(AuthMiddleware)
    app.add_middleware(SecurityHeadersMiddleware)
    app.add_middleware(MetricsMiddleware, metrics=metrics or Metrics())
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.services.close()


# ---------------------------------------------------------------- pages

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


# ---------------------------------------------------------------- errors, all in one shape


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    own_words = f"{request.method} {request.url.path} is not served here; see /docs."
    message = own_words if error.detail == phrase else error.detail
    code = phrase.lower().replace(" ", "-")
    headers = error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The router's own answer names only the methods of the first route that matches.
        path, allowed = request.scope["path"], ["GET", "HEAD"]  # of pages and files
        if path.startswith("/api/"):
            asked = {"type": "http", "path": path, "root_path": "", "headers": []}
            allowed = [
                method
                for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
                if any(it.matches({**asked, "method": method})[0] is Match.FULL for it in request.app.router.routes)
            ]
        headers = {"Allow": ", ".join(allowed)}
    if request.url.path.startswith(openai.router.prefix):
        return openai.openai_error(error.status_code, code, message, headers)
    return errors.error_response(error.status_code, ErrorBody(code=code, message=message), headers)


def _invalid_request(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = {
        ".".join(str(part) for part in problem["loc"][1:]) or "body": str(problem["msg"]) for problem in error.errors()
    }
    named = "; ".join(
        f"{name} {message.removeprefix('Input ')}" if message.startswith("Input ") else f"{name}: {message}"
        for name, message in list(problems.items())[:PROBLEMS_NAMED]
    )
    detail: dict[str, str | int | float | None] = {**problems}
    return errors.error_response(
        422, ErrorBody(code="invalid-request", message=f"Invalid request: {named}.", detail=detail)
    )
