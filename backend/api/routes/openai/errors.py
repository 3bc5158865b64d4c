"""Errors in OpenAI's shape, which its clients turn into exceptions of their own."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sqlalchemy.exc import DBAPIError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from mxd.backend.errors import BusyError, ClientGoneError, error_body, status_and_code, to_client_error
from mxd.backend.responses import response_to
from mxd.backend.schemas.openai import OpenAIErrorBody, OpenAIErrorResponse
from mxd.trainer.errors import UserError

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""Status -> type; below 500 the others are ``invalid_request_error``, from 500 ``server_error``."""


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's shape."""

    def get_route_handler(self) -> Handler:
        """Return the handler of requests."""
        handler = super().get_route_handler()

        async def with_errors(request: Request) -> Response:
            try:
                return await handler(request)
            except (RequestValidationError, ValidationError) as error:
                return invalid_request(error)
            except (UserError, BusyError, ClientGoneError, DBAPIError) as error:
                return known_error(error)

        return with_errors


def invalid_request(error: RequestValidationError | ValidationError) -> JSONResponse:
    """Return status 400 for a body that fails validation, with the first problem."""
    problem = error.errors()[0]
    places = [str(part) for part in problem["loc"] if part != "body"]
    context = problem.get("ctx") or {}
    is_unsupported = problem["type"] == "unsupported_parameter"
    param = str(context["name"]) if is_unsupported else ".".join(places) or None
    message = str(problem["msg"]) if is_unsupported else f"Invalid value of {param or 'the body'}: {problem['msg']}."
    code = "unsupported_parameter" if is_unsupported else "invalid_value"
    return _response(400, OpenAIErrorBody(message=message, type=_type(400), param=param, code=code))


def known_error(error: Exception) -> JSONResponse:
    """Return the response to an error that clients can cause, with a Retry-After header if retrying helps."""
    response = to_client_error(error)
    status, code = status_and_code(response)
    if response is error and isinstance(error, DBAPIError) and status >= 500:
        raise error  # a defect: logged, and answered with status 500
    retry = response_to(response).headers.get("retry-after")
    body = OpenAIErrorBody(message=error_body(response).message, type=_type(status), param=None, code=code)
    return _response(status, body, {"Retry-After": retry} if retry else None)


def unserved(status: int, code: str, message: str, headers: Mapping[str, str] | None) -> JSONResponse:
    """Return the response to a request that no route serves."""
    return _response(status, OpenAIErrorBody(message=message, type=_type(status), param=None, code=code), headers)


def _type(status: int) -> str:
    return TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")


def _response(status: int, body: OpenAIErrorBody, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(OpenAIErrorResponse(error=body).model_dump(), status_code=status, headers=headers)
