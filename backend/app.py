"""The application: settings in, FastAPI out. Nothing lives in the module, so tests can make as many as they like."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse, JSONResponse

from backend.database import open_database
from backend.docs import docs_page
from backend.errors import BusyError, error_body, status_and_code
from backend.frontend import frontend
from backend.headers import SECURITY_HEADERS, SecurityHeaders
from backend.library import Library
from backend.live import LiveEngine
from backend.queries.search import SearchIndexes
from backend.routes import experts, figures, health, lists, live, notes, routing, runs, sessions, steering
from backend.schemas import ErrorBody, ErrorResponse
from backend.services import Services
from backend.settings import Settings
from trainer.errors import UserError

MINIMUM_TO_COMPRESS = 1024
COMPRESSION_LEVEL = 5
PROBLEMS_NAMED = 3


def create_app(settings: Settings) -> FastAPI:
    """The server's application. The store is opened here, so that what is wrong with it shows at start.

    Raises:
        UserError: the store cannot be opened.
    """
    library = Library(settings.data, settings.runs_in_memory)
    app = build_api()
    app.state.services = Services(
        settings=settings,
        store=open_database(settings.store_url),
        library=library,
        live=LiveEngine(settings, library),
        search_indexes=SearchIndexes(),
        chance=random.Random(),
    )
    app.router.routes.append(frontend(settings.frontend))
    return app


def build_api() -> FastAPI:
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
    modules = (health, runs, experts, notes, lists, routing, live, steering, sessions, figures)
    for router in (*(module.router for module in modules), notes.of_run):
        app.include_router(router, prefix="/api")
    app.add_api_route("/docs", _docs, include_in_schema=False, response_class=HTMLResponse)
    app.add_exception_handler(UserError, _known_error)
    app.add_exception_handler(BusyError, _known_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unknown_error)
    app.add_middleware(GZipMiddleware, minimum_size=MINIMUM_TO_COMPRESS, compresslevel=COMPRESSION_LEVEL)
    app.add_middleware(SecurityHeaders)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    services: Services = app.state.services
    services.live.close()
    services.store.dispose()


def _operation_id(route: APIRoute) -> str:
    return route.name


def _docs(request: Request) -> HTMLResponse:
    return HTMLResponse(docs_page(request.app.openapi()))


# ---------------------------------------------------------------- errors, all in one shape


def _answer(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(ErrorResponse(error=body).model_dump(), status_code=status, headers=headers)


def _known_error(_request: Request, error: Exception) -> JSONResponse:
    status, _ = status_and_code(error)
    return _answer(status, error_body(error), {"Retry-After": "5"} if status == 503 else None)


def _unknown_error(_request: Request, error: Exception) -> JSONResponse:
    # This answer is made outside of all middleware.
    return _answer(500, error_body(error), SECURITY_HEADERS)


def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    own_words = f"{request.method} {request.url.path} is not served here; see /docs."
    message = own_words if error.detail == phrase else error.detail
    code = phrase.lower().replace(" ", "-")
    return _answer(error.status_code, ErrorBody(code=code, message=message), error.headers)


def _invalid_request(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    problems = {
        ".".join(str(part) for part in problem["loc"][1:]) or "body": str(problem["msg"]) for problem in error.errors()
    }
    sentence = "; ".join(f"{name}: {message}" for name, message in list(problems.items())[:PROBLEMS_NAMED])
    detail: dict[str, str | int | float | None] = {**problems}
    return _answer(422, ErrorBody(code="invalid-request", message=f"{sentence}.", detail=detail))
