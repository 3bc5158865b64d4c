"""Errors that reach a client, each with a status and a code that never changes."""

from __future__ import annotations

from typing import ClassVar

from sqlalchemy.exc import DataError, DBAPIError

from backend.schemas import ErrorBody
from trainer.errors import DamagedStoreError, NotFoundError, TooLongError, UserError
from trainer.opening import trouble_with


class RunNotFoundError(NotFoundError):
    """No run has this name."""

    code: ClassVar[str] = "run-not-found"


class ExpertNotFoundError(NotFoundError):
    """The run has no expert of this number."""

    code: ClassVar[str] = "expert-not-found"


class SessionNotFoundError(NotFoundError):
    """No saved session has this id."""

    code: ClassVar[str] = "session-not-found"


class NoIndexError(NotFoundError):
    """The run has not been indexed, so nothing is known of its experts."""

    code: ClassVar[str] = "no-index"


class ListNotFoundError(NotFoundError):
    """The run has no list of this number, or the list has no such entry."""

    code: ClassVar[str] = "list-not-found"


class NoEvaluationsError(NotFoundError):
    """There is nothing to draw the frontier from."""

    code: ClassVar[str] = "no-evaluations"


class CursorError(UserError):
    """A cursor that was not given out for this very list."""

    code: ClassVar[str] = "bad-cursor"


class BusyError(Exception):
    """More requests are waiting than the settings allow."""

    code: ClassVar[str] = "busy"


class ClientGoneError(Exception):
    """Whoever asked has closed the connection; nobody reads this answer, the log does."""

    code: ClassVar[str] = "client-gone"


class NotSignedInError(Exception):
    """A token is needed, and there is none or one that is not in use."""

    code: ClassVar[str] = "not-signed-in"


class ForbiddenError(Exception):
    """Whoever asks may not do this."""

    code: ClassVar[str] = "forbidden"


class MisdirectedError(Exception):
    """The request was meant for a server of another name."""

    code: ClassVar[str] = "wrong-host"


class BodyTooLargeError(Exception):
    """The request's body is larger than the settings allow."""

    code: ClassVar[str] = "request-too-large"


class TooManyRequestsError(Exception):
    """A client asks more often than the settings allow.

    Args:
        seconds: after which it may ask again.
    """

    code: ClassVar[str] = "too-many-requests"

    def __init__(self, message: str, seconds: float) -> None:
        super().__init__(message)
        self.seconds = seconds


class StoreError(Exception):
    """The store cannot be used now; the message says why."""

    code: ClassVar[str] = "store-unavailable"


INTERNAL = "internal"
UNSTORABLE = "The store cannot keep or look for that: it holds the character NUL, or is too large for it; change it."

_BY_KIND: tuple[tuple[type[Exception], int, str], ...] = (
    (NotFoundError, 404, "not-found"),
    (TooLongError, 413, "prompt-too-long"),
    (DamagedStoreError, 503, "store-unavailable"),
    (UserError, 400, "bad-input"),
    (NotSignedInError, 401, NotSignedInError.code),
    (ForbiddenError, 403, ForbiddenError.code),
    (BodyTooLargeError, 413, BodyTooLargeError.code),
    (MisdirectedError, 421, MisdirectedError.code),
    (TooManyRequestsError, 429, TooManyRequestsError.code),
    (ClientGoneError, 499, ClientGoneError.code),
    (BusyError, 503, "busy"),
    (StoreError, 503, StoreError.code),
    (DataError, 422, "cannot-be-stored"),
)


def status_and_code(error: BaseException) -> tuple[int, str]:
    """HTTP status and code of an error; 500 and ``internal`` for what is a defect of ours."""
    for kind, status, code in _BY_KIND:
        if isinstance(error, kind):
            # SQLAlchemy's errors have a code too, which means something else.
            return status, code if kind is DataError else str(getattr(error, "code", code))
    return 500, INTERNAL


def told_of(error: BaseException) -> BaseException:
    """The error that a client is told of: ``StoreError`` where a database says that the store cannot be used now."""
    told = trouble_with(error) if isinstance(error, DBAPIError) and not isinstance(error, DataError) else None
    return error if told is None else StoreError(told)


def error_body(error: BaseException) -> ErrorBody:
    """What a client is told. Of a defect it learns nothing but that there is one."""
    _, code = status_and_code(error)
    if code == INTERNAL:
        return ErrorBody(code=code, message="Something went wrong in the server; its log says what.")
    if isinstance(error, DataError):
        return ErrorBody(code=code, message=UNSTORABLE)
    return ErrorBody(code=code, message=str(error))
