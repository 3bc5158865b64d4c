"""OpenAI-compatible endpoints: chats and texts continued with edits to experts, by unmodified OpenAI clients.

They use the queue, the limits, the roles and the cancellation of all other endpoints.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import Services, ServicesDep
from mxd.backend.api.event_stream import Event, EventStream, cancel_on_disconnect
from mxd.backend.api.routes.openai.errors import OpenAIRoute
from mxd.backend.api.routes.openai.models import ModelNotFoundError, list_models, steering_request
from mxd.backend.api.routes.openai.texts import Piece, TextPieces
from mxd.backend.api.routes.steering import prepared
from mxd.backend.database.engine import reading
from mxd.backend.inference.jobs import CompletionConfig
from mxd.backend.responses import model_response
from mxd.backend.schemas.openai import (
    AnswerMessage,
    ChatChoice,
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChunkChoice,
    Delta,
    FinishReason,
    ModelInfo,
    ModelList,
    OpenAIErrorResponse,
    TextChoice,
    TextCompletion,
    TextCompletionRequest,
    Usage,
)
from mxd.backend.schemas.steering import SteeringRequest

router = APIRouter(
    prefix="/v1",
    tags=["openai"],
    route_class=OpenAIRoute,
    responses={
        "4XX": {"model": OpenAIErrorResponse, "description": "The request cannot be served; the message says why."},
        "5XX": {"model": OpenAIErrorResponse, "description": "The server cannot answer now."},
    },
)

DONE: Event = "", b"[DONE]"


@dataclass(frozen=True)
class _Generation:
    """A request that generates, and the fields that all bodies of its response share."""

    head: dict[str, Any]
    pieces: TextPieces
    steps: AsyncGenerator[Sequence[Any], None]
    samples: int


@router.get("/models")
def openai_models(services: ServicesDep) -> ModelList:
    """All runs and saved sessions."""
    with reading(services.database) as session:
        return list_models(session)


@router.get("/models/{model:path}")
def openai_model(model: str, services: ServicesDep) -> ModelInfo:
    """One run or saved session."""
    with reading(services.database) as session:
        for listed in list_models(session).data:
            if listed.id == model:
                return listed
    raise ModelNotFoundError(f"Unknown model '{model}'. GET /v1/models lists all.")


@router.post(
    "/chat/completions",
    response_model=ChatCompletion,
    responses={200: {"content": {"text/event-stream": {"schema": {"$ref": "#/components/schemas/ChatCompletion"}}}}},
)
async def openai_chat(request: ChatCompletionRequest, services: ServicesDep, http: Request) -> Response:
    """Continue a chat with edits: one JSON body or, with ``stream``, chunks as server-sent events."""
    generation = await _started(services, request, "chatcmpl")
    if request.stream:
        first = [ChunkChoice(index=index, delta=Delta(role="assistant", content="")) for index in _indices(generation)]
        return await _stream(generation, request, _chat_chunk, first)
    texts, reasons = await cancel_on_disconnect(http, _collected(generation))
    choices = tuple(
        ChatChoice(index=index, message=AnswerMessage(content=text), finish_reason=reason)
        for index, (text, reason) in enumerate(zip(texts, reasons, strict=True))
    )
    return model_response(ChatCompletion(**generation.head, choices=choices, usage=generation.pieces.usage))


@router.post(
    "/completions",
    response_model=TextCompletion,
    responses={200: {"content": {"text/event-stream": {"schema": {"$ref": "#/components/schemas/TextCompletion"}}}}},
)
async def openai_completion(request: TextCompletionRequest, services: ServicesDep, http: Request) -> Response:
    """Continue a text with edits: one JSON body or, with ``stream``, chunks as server-sent events."""
    generation = await _started(services, request, "cmpl")
    if request.stream:
        return await _stream(generation, request, _text_chunk, [])
    texts, reasons = await cancel_on_disconnect(http, _collected(generation))
    choices = tuple(
        TextChoice(index=index, text=text, finish_reason=reason)
        for index, (text, reason) in enumerate(zip(texts, reasons, strict=True))
    )
    return model_response(TextCompletion(**generation.head, choices=choices, usage=generation.pieces.usage))


async def _started(
    services: Services, request: ChatCompletionRequest | TextCompletionRequest, prefix: str
) -> _Generation:
    def resolved() -> tuple[str, SteeringRequest]:
        with reading(services.database) as session:
            return steering_request(session, request, services.chance)

    run, steering = await asyncio.to_thread(resolved)
    config, units = await prepared(services, run, steering, CompletionConfig)
    head = {"id": f"{prefix}-{uuid4().hex}", "created": int(time.time()), "model": request.model}
    pieces = TextPieces(config.sampling.stop, config.sampling.samples)
    return _Generation(head, pieces, services.live.generate(list(units), config, units), config.sampling.samples)


def _indices(generation: _Generation) -> range:
    return range(generation.samples)


async def _collected(generation: _Generation) -> tuple[list[str], list[FinishReason]]:
    """Run a generation to its end; return its texts and why each ended."""
    texts = [""] * generation.samples
    reasons: list[FinishReason] = ["length"] * generation.samples
    async for pieces in generation.pieces.read(generation.steps):
        for piece in pieces:
            texts[piece.sample] += piece.text
            reasons[piece.sample] = piece.reason or reasons[piece.sample]
    return texts, reasons


Chunk = Callable[[dict[str, Any], Sequence[Piece], Usage | None], ChatCompletionChunk | TextCompletion]


async def _stream(
    generation: _Generation,
    request: ChatCompletionRequest | TextCompletionRequest,
    chunk: Chunk,
    first: Sequence[ChunkChoice],
) -> EventStream:
    pieces = generation.pieces.read(generation.steps)
    beginning = await anext(pieces)  # errors before the first step become a status code, not an event

    async def events() -> AsyncGenerator[Sequence[Event], None]:
        try:
            if first:
                yield [("", ChatCompletionChunk(**generation.head, choices=tuple(first)))]
            yield [("", chunk(generation.head, [piece], None)) for piece in beginning]
            async for together in pieces:
                yield [("", chunk(generation.head, [piece], None)) for piece in together]
            if request.stream_options is not None and request.stream_options.include_usage:
                yield [("", chunk(generation.head, [], generation.pieces.usage))]
            yield [DONE]
        finally:
            await pieces.aclose()

    return EventStream(events())


def _chat_chunk(head: dict[str, Any], pieces: Sequence[Piece], usage: Usage | None) -> ChatCompletionChunk:
    choices = tuple(
        ChunkChoice(index=piece.sample, delta=Delta(content=piece.text or None), finish_reason=piece.reason)
        for piece in pieces
    )
    return ChatCompletionChunk(**head, choices=choices, usage=usage)


def _text_chunk(head: dict[str, Any], pieces: Sequence[Piece], usage: Usage | None) -> TextCompletion:
    choices = tuple(TextChoice(index=piece.sample, text=piece.text, finish_reason=piece.reason) for piece in pieces)
    return TextCompletion(**head, choices=choices, usage=usage)
