"""The application: settings in, FastAPI out. Nothing lives in the module, so tests can make as many as they like."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from sqlalchemy.exc import DataError, DBAPIError
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from backend.access.bodies import BodyLimit
from backend.access.guard import Doorkeeper, Guard
from backend.answers import answer, error_answer
from backend.database import open_database, size_in_bytes
from backend.docs import docs_page
from backend.errors import BusyError, ClientGoneError, NotSignedInError, TooManyRequestsError, error_body, told_of
from backend.frontend import frontend
from backend.headers import SECURITY_HEADERS, SecurityHeaders
from backend.kept_figures import kept_figures
from backend.library import Library
from backend.live import LiveEngine
from backend.observing import Observations, Observed
from backend.overload import Overload
from backend.queries.browsing import Browsing
from backend.queries.comparison import kept_matches
from backend.queries.held import HeldPerIndex
from backend.queries.together import read_together
from backend.routes import (
    access,
    bundles,
    circuits,
    comparison,
    evaluations,
    experts,
    figures,
    health,
    lists,
    live,
    notes,
    privacy,
    routing,
    runs,
    sessions,
    steering,
)
from backend.schemas import ErrorBody, ErrorResponse
from backend.services import Services
from backend.settings import Settings
from trainer.errors import UserError

MINIMUM_TO_COMPRESS = 1024
COMPRESSION_LEVEL = 1
PROBLEMS_NAMED = 3
DEFAULT_BODY_BYTES: int = Settings.model_fields["body_bytes"].default
DEFAULT_MOST_WAITING: int = Settings.model_fields["waiting_requests"].default


def create_app(settings: Settings) -> FastAPI:
    """The server's application. The store is opened here, so that what is wrong with it shows at start.

    Raises:
        UserError: the store cannot be opened.
    """
    library = Library(settings.data, settings.runs_in_memory)
    store = open_database(settings.store_url)
    observations = Observations()
    app = build_api(observations, settings.body_bytes, settings.waiting_requests)
    app.state.services = Services(
        settings=settings,
        store=store,
        library=library,
        live=LiveEngine(settings, library),
        browsing=Browsing(store),
        together=HeldPerIndex(read_together),
        matches=kept_matches(library),
        figures=kept_figures(library),
        chance=random.Random(),
        doorkeeper=Doorkeeper(settings, store),
        observations=observations,
    )
    app.router.routes.append(frontend(settings.frontend))
    return app


def build_api(
    observations: Observations | None = None,
    body_bytes: int = DEFAULT_BODY_BYTES,
    most_waiting: int = DEFAULT_MOST_WAITING,
) -> FastAPI:
    """The application with nothing behind it yet: enough to say what its API is."""
    app = FastAPI(
        title="MxD Explorer",
        description="Browse the experts of fitted layers, route texts through them, steer generations with them.",
        version=version("mxd-explorer"),
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/api/openapi.json",
        generate_unique_id_function=_operation_id,
        responses={
            "4XX": {"model": ErrorResponse, "description": "The request cannot be served; the message says why."},
            "5XX": {"model": ErrorResponse, "description": "The server cannot answer now."},
        },
    )
    of_runs = (runs, comparison, evaluations, experts, notes, lists)
    modules = (health, access, *of_runs, routing, live, circuits, privacy, steering, sessions, figures, bundles)
    for router in (*(module.router for module in modules), notes.of_run):
        app.include_router(router, prefix="/api")
    app.add_api_route("/docs", _docs, include_in_schema=False, response_class=HTMLResponse)
    app.add_api_route("/metrics", _metrics, include_in_schema=False, response_class=Response)
    app.add_api_route("/healthz", _alive, include_in_schema=False, response_class=PlainTextResponse)
    for known in (UserError, BusyError, ClientGoneError, NotSignedInError, TooManyRequestsError, DataError):
        app.add_exception_handler(known, _known_error)
    app.add_exception_handler(DBAPIError, _store_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unknown_error)
    app.add_middleware(GZipMiddleware, minimum_size=MINIMUM_TO_COMPRESS, compresslevel=COMPRESSION_LEVEL)
    app.add_middleware(BodyLimit, most_bytes=body_bytes)
    app.add_middleware(Guard)
    app.add_middleware(Overload, most_waiting=most_waiting)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Observed, observations=observations or Observations())
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    services: Services = app.state.services
    services.live.close()
    services.browsing.close()
    services.store.dispose()


def _operation_id(route: APIRoute) -> str:
    return route.name


def _alive() -> str:
    """For health checks, which have no token: it says nothing but that the process answers."""
    return "ok"


def _metrics(request: Request) -> Response:
    services: Services = request.app.state.services
    services.observations.live.set(services.live.at_work)
    services.observations.store.set(size_in_bytes(services.store))
    return Response(services.observations.page(), media_type=CONTENT_TYPE_PLAIN_0_0_4)


def _docs(request: Request) -> HTMLResponse:
    return HTMLResponse(docs_page(request.app.openapi()))


# ---------------------------------------------------------------- errors, all in one shape


def _known_error(_request: Request, error: Exception) -> JSONResponse:
    return error_answer(error)


def _store_error(_request: Request, error: Exception) -> JSONResponse:
    told = told_of(error)
    if told is error:
        raise error  # a defect of ours: logged, and answered as such
    return error_answer(told)


def _unknown_error(_request: Request, error: Exception) -> JSONResponse:
    # This answer is made outside of all middleware.
    return answer(500, error_body(error), SECURITY_HEADERS)


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    own_words = f"{request.method} {request.url.path} is not served here; see /docs."
    message = own_words if error.detail == phrase else error.detail
    code = phrase.lower().replace(" ", "-")
    return answer(error.status_code, ErrorBody(code=code, message=message), error.headers)


def _invalid_request(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = {
        ".".join(str(part) for part in problem["loc"][1:]) or "body": str(problem["msg"]) for problem in error.errors()
    }
    sentence = "; ".join(_in_words(name, message) for name, message in list(problems.items())[:PROBLEMS_NAMED])
    detail: dict[str, str | int | float | None] = {**problems}
    return answer(
        422, ErrorBody(code="invalid-request", message=f"{sentence}; change it and try again.", detail=detail)
    )


def _in_words(name: str, message: str) -> str:
    """``edits.0.strength`` and "Input should be …" as the beginning of a sentence about it."""
    subject = "In what was sent, " + name
    return f"{subject} {message.removeprefix('Input ')}" if message.startswith("Input ") else f"{subject}: {message}"
