"""Errors that clients receive, each with an HTTP status and a stable code; responses in the one format of clients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel
from pydantic_core import to_json
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.responses import JSONResponse, Response

from mxd.backend.schemas.base import ErrorBody, ErrorResponse
from mxd.trainer.errors import (
    CancelledError,
    DamagedDatabaseError,
    NotFoundError,
    TooLongError,
    UserError,
    is_out_of_memory,
)
from mxd.trainer.storage.database.engine import database_error_message


class RunNotFoundError(NotFoundError):
    """There is no run with this name."""

    code: ClassVar[str] = "run-not-found"


class ExpertNotFoundError(NotFoundError):
    """The run has no expert with this id."""

    code: ClassVar[str] = "expert-not-found"


class SessionNotFoundError(NotFoundError):
    """There is no saved session with this id."""

    code: ClassVar[str] = "session-not-found"


class NoIndexError(NotFoundError):
    """The run has not been indexed."""

    code: ClassVar[str] = "no-index"


class ListNotFoundError(NotFoundError):
    """The run has no list with this id, or the list has no such entry."""

    code: ClassVar[str] = "list-not-found"


class NoEvaluationsError(NotFoundError):
    """There are no evaluations to plot."""

    code: ClassVar[str] = "no-evaluations"


class CursorError(UserError):
    """The cursor belongs to another list, or is no cursor."""

    code: ClassVar[str] = "bad-cursor"


class BusyError(Exception):
    """The request queue is full. A new attempt is likely to succeed after some ``seconds``."""

    code: ClassVar[str] = "busy"

    def __init__(self, message: str, seconds: float = 5.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class OutOfMemoryError(UserError):
    """The device has no memory for a request; the other requests continue."""

    code: ClassVar[str] = "out-of-memory"

    def __init__(self) -> None:
        super().__init__(
            "The device is out of memory for this request. Shorten the prompt, or request fewer samples or tokens."
        )


class UnusableRunError(UserError):
    """Files of a run or of its language model are damaged or missing on the server; the message says which."""

    code: ClassVar[str] = "run-unusable"


class ClientGoneError(Exception):
    """The client closed the connection. The response only appears in the log."""

    code: ClassVar[str] = "client-gone"


class NotSignedInError(Exception):
    """The request has no valid access token, and one is required."""

    code: ClassVar[str] = "not-signed-in"


class ForbiddenError(Exception):
    """The access token does not permit this request."""

    code: ClassVar[str] = "forbidden"


class MisdirectedError(Exception):
    """The Host header names another server."""

    code: ClassVar[str] = "wrong-host"


class BodyTooLargeError(Exception):
    """The body of the request exceeds the limit."""

    code: ClassVar[str] = "request-too-large"


class DatabaseUnavailableError(Exception):
    """The database is temporarily unusable; the message states the reason."""

    code: ClassVar[str] = "database-unavailable"


INTERNAL = "internal"
UNSTORABLE_MESSAGE = "The database cannot store or search this text: it contains a NUL character or is too long."

_BY_KIND: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "not-found"),
    (TooLongError, 413, "prompt-too-long"),
    (DamagedDatabaseError, 503, "database-unavailable"),
    (OutOfMemoryError, 503, OutOfMemoryError.code),
    (UnusableRunError, 503, UnusableRunError.code),
    (CancelledError, 499, ClientGoneError.code),
    (UserError, 400, "bad-input"),
    (NotSignedInError, 401, NotSignedInError.code),
    (ForbiddenError, 403, ForbiddenError.code),
    (BodyTooLargeError, 413, BodyTooLargeError.code),
    (MisdirectedError, 421, MisdirectedError.code),
    (ClientGoneError, 499, ClientGoneError.code),
    (BusyError, 503, "busy"),
    (DatabaseUnavailableError, 503, DatabaseUnavailableError.code),
    (DataError, 422, "cannot-be-stored"),
)


def status_and_code(error: BaseException) -> tuple[int, str]:
    """Return the HTTP status and code of an error: 500 and ``internal`` for a defect of the server."""
    for kind, status, code in _BY_KIND:
        if isinstance(error, kind):
            # SQLAlchemy errors have a ``code`` attribute with another meaning.
            return status, code if kind is DataError else str(getattr(error, "code", code))
    return 500, INTERNAL


def to_client_error(error: BaseException) -> BaseException:
    """Return the error to send to the client: its own for an unusable database and for memory, else ``error``."""
    if is_out_of_memory(error):
        return OutOfMemoryError()
    if isinstance(error, PoolTimeoutError):
        return DatabaseUnavailableError("All connections to the database are in use. Try again in a moment.")
    if not isinstance(error, DBAPIError) or isinstance(error, DataError):
        return error
    message = database_error_message(error)
    return error if message is None else DatabaseUnavailableError(message)


def error_body(error: BaseException) -> ErrorBody:
    """Return the error body for a client. It does not reveal the details of a defect of the server."""
    _, code = status_and_code(error)
    if code == INTERNAL:
        return ErrorBody(code=code, message="Internal server error. The server log has the details.")
    if isinstance(error, DataError):
        return ErrorBody(code=code, message=UNSTORABLE_MESSAGE)
    return ErrorBody(code=code, message=str(error))


RETRY_AFTER_S = 5
JSON_TYPE = "application/json"


def model_response(body: BaseModel) -> Response:
    """Serialise a schema that is already validated, without FastAPI's second validation and copy."""
    return Response(body.__pydantic_serializer__.to_json(body), media_type=JSON_TYPE)


def to_json_bytes(data: Any) -> bytes:
    """Serialise a schema, or plain data in its shape. NaN and infinities, which JSON lacks, become null."""
    return to_json(data, inf_nan_mode="null")


def json_response(body: Any) -> Response:
    """Serialise plain data in the shape of a schema. Ten times as fast as a schema with thousands of small parts."""
    return Response(to_json_bytes(body), media_type=JSON_TYPE)


def error_response(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(ErrorResponse(error=body).model_dump(), status_code=status, headers=headers)


def response_to(error: BaseException) -> JSONResponse:
    """Return the response to an exception, with a Retry-After header if retrying helps."""
    seconds: float | None = None
    if isinstance(error, DatabaseUnavailableError):
        seconds = RETRY_AFTER_S
    elif isinstance(error, BusyError):
        seconds = max(1, math.ceil(error.seconds))
    headers = None if seconds is None else {"Retry-After": str(seconds)}
    return error_response(status_and_code(error)[0], error_body(error), headers)
