"""Every error as an answer, in the one shape that clients know."""

from __future__ import annotations

import math
from collections.abc import Mapping

from starlette.responses import JSONResponse

from backend.errors import BusyError, TooManyRequestsError, error_body, status_and_code
from backend.schemas import ErrorBody, ErrorResponse

SECONDS_UNTIL_LESS_BUSY = 5


def answer(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error of this status."""
    return JSONResponse(ErrorResponse(error=body).model_dump(), status_code=status, headers=headers)


def error_answer(error: BaseException) -> JSONResponse:
    """What a client is told of an exception, and when to come back where that helps."""
    status, _ = status_and_code(error)
    return answer(status, error_body(error), _retry(error))


def _retry(error: BaseException) -> dict[str, str] | None:
    if isinstance(error, BusyError):
        return {"Retry-After": str(SECONDS_UNTIL_LESS_BUSY)}
    if isinstance(error, TooManyRequestsError):
        return {"Retry-After": str(max(1, math.ceil(error.seconds)))}
    return None
