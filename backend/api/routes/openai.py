"""OpenAI-compatible endpoints: chats and texts continued with edits to experts, by unmodified OpenAI clients.

They use the queue, the limits, the roles and the cancellation of all other endpoints.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from random import Random
from typing import Any, Literal, NamedTuple
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from starlette.responses import JSONResponse, Response

from mxd.backend import errors
from mxd.backend.api.dependencies import Services, ServicesDep
from mxd.backend.api.event_stream import Event, EventStream
from mxd.backend.api.routes.steering import prepared
from mxd.backend.database.annotations import SessionRecord, sessions_of
from mxd.backend.database.engine import reading
from mxd.backend.inference.service import CompletionConfig, cancel_on_disconnect
from mxd.backend.queries.runs import aware
from mxd.backend.schemas.base import json_response
from mxd.backend.schemas.openai import DEFAULT_TOKENS, ChatCompletionRequest, StreamOptions, TextCompletionRequest
from mxd.backend.schemas.steering import SteeringRequest
from mxd.trainer.config.steering import Sampling
from mxd.trainer.errors import UserError
from mxd.trainer.inference.results import DoneEvent, StartEvent, TokenEvent
from mxd.trainer.language_model.tokenizer import Turn
from mxd.trainer.storage.database.tables import RunRecord

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
TYPES: Mapping[int, str] = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
"""Status -> type; below 500 the others are ``invalid_request_error``, from 500 ``server_error``."""


class OpenAIRoute(APIRoute):
    """A route whose errors have OpenAI's shape."""

    def get_route_handler(self) -> Handler:
        handler = super().get_route_handler()

        async def with_errors(request: Request) -> Response:
            try:
                return await handler(request)
            except (RequestValidationError, ValidationError) as error:
                return invalid_request(error)
            except (UserError, errors.Coded, DBAPIError) as error:
                status, body, headers = errors.answer_to(error)
                if status == 500:
                    raise
                return openai_error(status, body.code, body.message, headers)

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
    return openai_error(400, code, message, param=param)


def openai_error(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None, param: str | None = None
) -> JSONResponse:
    """Return an error in OpenAI's shape. ``param``: the parameter that the message is about."""
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return JSONResponse(body, status_code=status, headers=headers)


class Piece(NamedTuple):
    """Characters that a text gains; the last piece has the reason why it ended."""

    sample: int
    text: str
    reason: Literal["stop", "length"] | None


class StopFilter:
    """Passes a growing text on up to its first stop sequence, and holds back what may be the beginning of one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._held = ""

    def push(self, text: str) -> str:
        """Return the characters that are certain not to belong to a stop sequence."""
        self._held += text
        stops = [self._held.find(stop) for stop in self._stops if stop in self._held]
        ends = ((place, self._held[place:]) for place in range(len(self._held)))
        open_stops = (place for place, end in ends if any(stop.startswith(end) for stop in self._stops))
        end = min(stops) if stops else next(open_stops, len(self._held))
        passed, self._held = self._held[:end], self._held[end:]
        return passed

    def flush(self) -> str:
        """Return the characters that were held back, at the end of a text without a stop sequence."""
        pending, self._held = self._held, ""
        return pending


class TextPieces:
    """Turns the events of a generation into pieces, and counts tokens."""

    def __init__(self, stops: Sequence[str], samples: int) -> None:
        self._filters = [StopFilter(stops) for _ in range(samples)]
        self._prompt_tokens = self._new_tokens = 0

    @property
    def usage(self) -> dict[str, int]:
        """Numbers of tokens so far: of the prompt with its start token, of all new texts, and of both."""
        prompt, new = self._prompt_tokens, self._new_tokens
        return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}

    async def read(self, steps: AsyncGenerator[Sequence[Any], None]) -> AsyncGenerator[list[Piece], None]:
        """Yield the pieces of each step; closes ``steps`` at the end."""
        async with aclosing(steps):
            async for together in steps:
                pieces = []
                for step in together:
                    if isinstance(step, StartEvent):
                        self._prompt_tokens = step.prompt_tokens
                    elif isinstance(step, DoneEvent):
                        self._new_tokens = step.tokens
                    elif isinstance(step, TokenEvent):
                        stops = self._filters[step.sample]
                        # The token that ends the text is not part of it.
                        text = "" if step.reason == "end-of-text" else stops.push(step.text)
                        text += stops.flush() if step.reason in ("end-of-text", "length") else ""
                        pieces.append(Piece(step.sample, text, "stop" if step.reason == "end-of-text" else step.reason))
                yield [piece for piece in pieces if piece.text or piece.reason]


SAMPLED = ("temperature", "top_p", "top_k", "repetition_penalty", "seed")
STEERED = ("edits", "mode", "scope", "k")


CompletionRequest = ChatCompletionRequest | TextCompletionRequest


class ModelNotFoundError(errors.RunNotFoundError, code="model_not_found"):
    """There is no run and no saved session of this name."""


def list_models(session: Session) -> list[dict[str, Any]]:
    """All runs, then all saved sessions; a session whose name is taken appears under its id."""
    runs = session.scalars(select(RunRecord).order_by(RunRecord.started_at.desc(), RunRecord.id.desc()))
    models = {run.name: (run.started_at, run.language_model) for run in runs}
    for record in sessions_of(session):
        models[record.id if record.name in models else record.name] = record.saved_at, record.run
    return [
        {"id": name, "object": "model", "created": int(aware(moment).timestamp()), "owned_by": owner}
        for name, (moment, owner) in models.items()
    ]


def steering_request(session: Session, request: CompletionRequest, chance: Random) -> tuple[str, SteeringRequest]:
    """Return the run of a request's model, and the request as one to steer."""
    run, defaults = _model(session, request.model, chance)
    given = {name: value for name in STEERED if (value := getattr(request, name)) is not None}
    sampled = {name: getattr(request, name) for name in SAMPLED} | {
        "max_tokens": getattr(request, "max_completion_tokens", None) or request.max_tokens,
        "stop": (request.stop,) if isinstance(request.stop, str) else request.stop,
        "samples": request.n or 1,
    }
    named = {name: value for name, value in sampled.items() if value is not None}
    sampling = defaults.sampling.model_dump() | named
    settings = {**defaults.model_dump(exclude={"sampling", "prompt", "turns", "positions"}), **given}
    if isinstance(request, TextCompletionRequest):
        settings["prompt"] = request.prompt if isinstance(request.prompt, str) else request.prompt[0]
    else:
        roles = (("system" if one.role == "developer" else one.role, one.text) for one in request.messages)
        settings["turns"] = tuple(Turn.model_validate({"role": role, "text": text}) for role, text in roles)
    return run, SteeringRequest.model_validate({**settings, "sampling": sampling})


def _model(session: Session, name: str, chance: Random) -> tuple[str, SteeringRequest]:
    """Return the run of a model and the defaults of its requests. Of sessions with one name, the newest counts."""
    if session.scalar(select(RunRecord.id).where(RunRecord.name == name)) is not None:
        seed = chance.randrange(2**53)
        sampling = Sampling(temperature=1, top_p=1, repetition_penalty=1, max_tokens=DEFAULT_TOKENS, seed=seed)
        return name, SteeringRequest(sampling=sampling)
    named = select(SessionRecord).where(SessionRecord.name == name).order_by(SessionRecord.saved_at.desc())
    record = session.get(SessionRecord, name) or session.scalars(named).first()
    if record is None:
        raise ModelNotFoundError(
            f"Unknown model '{name}'. Use the name of a run or of a saved session; GET /v1/models lists them."
        )
    return record.run, SteeringRequest.model_validate(record.steering)


router = APIRouter(
    prefix="/v1",
    tags=["openai"],
    route_class=OpenAIRoute,
    responses={
        "4XX": {"description": "The request cannot be served; the message says why."},
        "5XX": {"description": "The server cannot answer now."},
    },
)

DONE: Event = "", b"[DONE]"
ANSWERS: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {}, "text/event-stream": {}}}}


@router.get("/models")
def openai_models(services: ServicesDep) -> dict[str, Any]:
    """All runs and saved sessions."""
    with reading(services.database) as session:
        return {"object": "list", "data": list_models(session)}


@router.get("/models/{model:path}")
def openai_model(model: str, services: ServicesDep) -> dict[str, Any]:
    """One run or saved session."""
    with reading(services.database) as session:
        for listed in list_models(session):
            if listed["id"] == model:
                return listed
    raise ModelNotFoundError(f"Unknown model '{model}'. GET /v1/models lists all.")


@router.post("/chat/completions", response_class=Response, responses=ANSWERS)
async def openai_chat(request: ChatCompletionRequest, services: ServicesDep, http: Request) -> Response:
    """Continue a chat with edits: one JSON body or, with ``stream``, chunks as server-sent events."""
    return await _completed(services, request, http, "chatcmpl")


@router.post("/completions", response_class=Response, responses=ANSWERS)
async def openai_completion(request: TextCompletionRequest, services: ServicesDep, http: Request) -> Response:
    """Continue a text with edits: one JSON body or, with ``stream``, chunks as server-sent events."""
    return await _completed(services, request, http, "cmpl")


async def _completed(services: Services, request: CompletionRequest, http: Request, prefix: str) -> Response:
    def resolved() -> tuple[str, SteeringRequest]:
        with reading(services.database) as session:
            return steering_request(session, request, services.rng)

    run, steering = await asyncio.to_thread(resolved)
    config, units = await prepared(services, run, steering, CompletionConfig)
    samples = config.sampling.samples
    is_chat = isinstance(request, ChatCompletionRequest)
    kind = "chat.completion" + ".chunk" * bool(request.stream) if is_chat else "text_completion"
    head = {"id": f"{prefix}-{uuid4().hex}", "object": kind, "created": int(time.time()), "model": request.model}
    texts = TextPieces(config.sampling.stop, samples)
    steps = texts.read(services.inference.generate(list(units), config, units))

    def answer(pieces: Sequence[Piece], usage: dict[str, int] | None = None, role: str | None = None) -> dict[str, Any]:
        choices = [
            {"index": sample, **_content(request, text, role), "finish_reason": reason, "logprobs": None}
            for sample, text, reason in pieces
        ]
        return {**head, "choices": choices, "usage": usage}

    if not request.stream:
        return json_response(answer(await cancel_on_disconnect(http, _collected(steps, samples)), texts.usage))
    beginning = await anext(steps)  # errors before the first step become a status code, not an event

    async def events() -> AsyncGenerator[Sequence[Event], None]:
        try:
            if is_chat:
                yield [("", answer([Piece(sample, "", None) for sample in range(samples)], role="assistant"))]
            yield [("", answer([piece])) for piece in beginning]
            async for together in steps:
                yield [("", answer([piece])) for piece in together]
            if (request.stream_options or StreamOptions()).include_usage:
                yield [("", answer([], texts.usage))]
            yield [DONE]
        finally:
            await steps.aclose()

    return EventStream(events())


def _content(request: CompletionRequest, text: str, role: str | None) -> dict[str, Any]:
    """Return a text as an endpoint writes it. ``role``: that of the author, in the first chunk of a chat."""
    if isinstance(request, TextCompletionRequest):
        return {"text": text}
    if request.stream:
        return {"delta": {"role": role, "content": text if text or role else None}}
    return {"message": {"role": "assistant", "content": text, "refusal": None}}


async def _collected(steps: AsyncGenerator[list[Piece], None], samples: int) -> list[Piece]:
    """Run a generation to its end; return each text as one piece, with why it ended."""
    whole = [Piece(sample, "", "length") for sample in range(samples)]
    async for pieces in steps:
        for sample, text, reason in pieces:
            whole[sample] = Piece(sample, whole[sample].text + text, reason or whole[sample].reason)
    return whole
