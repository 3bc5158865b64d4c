"""Errors that clients receive, each with an HTTP status and a stable code; responses in the one format of clients."""

import math
from collections.abc import Mapping
from typing import ClassVar

from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from starlette.responses import JSONResponse

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


class Coded(Exception):
    """Base class of errors with an HTTP status and a stable code."""

    status: ClassVar[int]
    code: ClassVar[str]

    def __init_subclass__(cls, status: int | None = None, code: str | None = None) -> None:
        cls.status, cls.code = status or cls.status, code or cls.code


class RunNotFoundError(Coded, NotFoundError, status=404, code="run-not-found"):
    """There is no run with this name."""


class ExpertNotFoundError(Coded, NotFoundError, status=404, code="expert-not-found"):
    """The run has no expert with this id."""


class SessionNotFoundError(Coded, NotFoundError, status=404, code="session-not-found"):
    """There is no saved session with this id."""


class NoIndexError(Coded, NotFoundError, status=404, code="no-index"):
    """The run has not been indexed."""


class ListNotFoundError(Coded, NotFoundError, status=404, code="list-not-found"):
    """The run has no list with this id, or the list has no such entry."""


class NoEvaluationsError(Coded, NotFoundError, status=404, code="no-evaluations"):
    """There are no evaluations to plot."""


class CursorError(Coded, UserError, status=400, code="bad-cursor"):
    """The cursor belongs to another list, or is no cursor."""


class BusyError(Coded, status=503, code="busy"):
    """The request queue is full. A new attempt is likely to succeed after some ``seconds``."""

    def __init__(self, message: str, seconds: float = 5.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class OutOfMemoryError(Coded, UserError, status=503, code="out-of-memory"):
    """The device has no memory for a request; the other requests continue."""

    def __init__(self) -> None:
        super().__init__(
            "The device is out of memory for this request. Shorten the prompt, or request fewer samples or tokens."
        )


class UnusableRunError(Coded, UserError, status=503, code="run-unusable"):
    """Files of a run or of its language model are damaged or missing on the server; the message says which."""


class ClientGoneError(Coded, status=499, code="client-gone"):
    """The client closed the connection. The response only appears in the log."""


class NotSignedInError(Coded, status=401, code="not-signed-in"):
    """The request has no valid access token, and one is required."""


class ForbiddenError(Coded, status=403, code="forbidden"):
    """The access token does not permit this request."""


class MisdirectedError(Coded, status=421, code="wrong-host"):
    """The Host header names another server."""


class BodyTooLargeError(Coded, status=413, code="request-too-large"):
    """The body of the request exceeds the limit."""


class DatabaseUnavailableError(Coded, status=503, code="database-unavailable"):
    """The database is temporarily unusable; the message states the reason."""


UNSTORABLE_MESSAGE = "The database cannot store or search this text: it contains a NUL character or is too long."

_OF_OTHERS: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "not-found"),
    (TooLongError, 413, "prompt-too-long"),
    (DamagedDatabaseError, DatabaseUnavailableError.status, DatabaseUnavailableError.code),
    (CancelledError, ClientGoneError.status, ClientGoneError.code),
    (UserError, 400, "bad-input"),
    (DataError, 422, "cannot-be-stored"),
)
"""Errors of the trainer and of the database, subclasses first."""


INTERNAL_BODY = ErrorBody(code="internal", message="Internal server error. The server log has the details.")
"""Answer to a defect of the server, whose details it does not reveal."""
RETRY_AFTER_S = 5


def error_response(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(ErrorResponse(error=body).model_dump(), status_code=status, headers=headers)


def answer_to(error: BaseException) -> tuple[int, ErrorBody, dict[str, str]]:
    """Return status, body and headers of the answer to an error: 500 and ``internal`` for a defect of the server."""
    headers: dict[str, str] = {}
    if is_out_of_memory(error):
        error = OutOfMemoryError()
    elif isinstance(error, PoolTimeoutError):
        error = DatabaseUnavailableError("All connections to the database are in use. Try again in a moment.")
    elif isinstance(error, DBAPIError) and not isinstance(error, DataError):
        message = database_error_message(error)
        error = error if message is None else DatabaseUnavailableError(message)
    if isinstance(error, DatabaseUnavailableError | BusyError):  # retrying helps
        seconds = max(1, math.ceil(error.seconds)) if isinstance(error, BusyError) else RETRY_AFTER_S
        headers["Retry-After"] = str(seconds)
    if isinstance(error, Coded):
        return error.status, ErrorBody(code=error.code, message=str(error)), headers
    for kind, status, code in _OF_OTHERS:
        if isinstance(error, kind):
            message = UNSTORABLE_MESSAGE if isinstance(error, DataError) else str(error)
            return status, ErrorBody(code=code, message=message), headers
    return 500, INTERNAL_BODY, headers


def response_to(error: BaseException) -> JSONResponse:
    """Return the response to an error; raise a defect of the server again, so that it is logged."""
    status, body, headers = answer_to(error)
    if status == 500:
        raise error
    return error_response(status, body, headers)
