"""Every error as an answer, in the one shape that clients know."""

from __future__ import annotations

import gzip
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response

from backend.errors import BusyError, StoreError, TooManyRequestsError, error_body, status_and_code
from backend.schemas import ErrorBody, ErrorResponse

SECONDS_UNTIL_LESS_BUSY = 5
JSON_TYPE = "application/json"
KEPT_LEVEL = 6
"""Of compression, where an answer is compressed once and sent often."""
QUICK_LEVEL = 1
"""Where much of it is asked for only once."""


def written(body: BaseModel) -> Response:
    """A wire model as it stands: it was checked when it was made, and is not checked or copied again on its way."""
    return Response(body.__pydantic_serializer__.to_json(body), media_type=JSON_TYPE)


def json_of(data: Any) -> bytes:
    """A wire model, or plain data in the shape of one. JSON has no NaN: what is no number is null."""
    return to_json(data, inf_nan_mode="null")


def plain(body: Any) -> Response:
    """Plain data in the shape of a wire model: where there are thousands of small ones, ten times as fast."""
    return Response(json_of(body), media_type=JSON_TYPE)


@dataclass(frozen=True)
class Kept:
    """An answer that is made once and sent often: its JSON, plain and compressed."""

    plain: bytes
    compressed: bytes

    @classmethod
    def of(cls, body: Any, level: int = KEPT_LEVEL) -> Kept:
        """A wire model, or plain data in the shape of one, written and compressed at a ``level`` of 1 to 9."""
        written = json_of(body)
        return cls(written, gzip.compress(written, level))

    def answer(self, headers: Headers) -> Response:
        """Compressed for those whose request ``headers`` take it."""
        vary = {"Vary": "Accept-Encoding"}
        if "gzip" not in headers.get("accept-encoding", ""):
            return Response(self.plain, media_type=JSON_TYPE, headers=vary)
        return Response(self.compressed, media_type=JSON_TYPE, headers={**vary, "Content-Encoding": "gzip"})


def answer(status: int, body: ErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error of this status."""
    return JSONResponse(ErrorResponse(error=body).model_dump(), status_code=status, headers=headers)


def error_answer(error: BaseException) -> JSONResponse:
    """What a client is told of an exception, and when to come back where that helps."""
    status, _ = status_and_code(error)
    return answer(status, error_body(error), _retry(error))


def _retry(error: BaseException) -> dict[str, str] | None:
    if isinstance(error, BusyError | StoreError):
        return {"Retry-After": str(SECONDS_UNTIL_LESS_BUSY)}
    if isinstance(error, TooManyRequestsError):
        return {"Retry-After": str(max(1, math.ceil(error.seconds)))}
    return None
