"""Contrast of two texts: which experts tell them apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from mxd.backend.api.dependencies import RunName, Services, ServicesDep
from mxd.backend.api.event_stream import EventStream, EventStreamJson, stream_responses, stream_steps
from mxd.backend.database.engine import reading
from mxd.backend.inference.service import contrast_steps
from mxd.backend.queries.contrasts import contrast_result, read_kinds, read_texts
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.comparison import (
    WITH_EXAMPLES,
    ContrastDoneEvent,
    ContrastEvent,
    ContrastProgressEvent,
    ContrastRequest,
    TextKinds,
)
from mxd.trainer.analysis.results import Contrast
from mxd.trainer.config import ContrastConfig

router = APIRouter(prefix="/runs/{run}", tags=["contrast"])

Steps = AsyncGenerator[Sequence[ContrastProgressEvent | ContrastDoneEvent], None]


@router.get("/kinds")
def kinds(run: RunName, services: ServicesDep) -> TextKinds:
    """Kinds of the documents of the run's indexed text, if its file is in the data folder and names them."""
    with reading(services.database) as session:
        return read_kinds(session, find_run(session, run), services.settings.data)


@router.post("/contrast", response_class=EventStreamJson, responses=stream_responses(ContrastEvent))
async def contrast(run: RunName, request: ContrastRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` after each step, then ``done`` with the experts, or ``error``.

    Closing the connection cancels. Nothing is stored.
    """
    return await stream_steps(_steps(services, run, request))


async def _steps(services: Services, run: str, request: ContrastRequest) -> Steps:
    texts = await run_in_threadpool(_texts, services, run, request)
    settings = request.model_dump(include={"tokens", "min_tokens", "min_units", "seed"})
    config = ContrastConfig(**settings, shown=min(request.limit, WITH_EXAMPLES))
    async with aclosing(contrast_steps(services.live, run, texts, config)) as steps:
        async for step in steps:
            if isinstance(step, ContrastProgressEvent):
                yield (step,)
            else:
                yield (await asyncio.to_thread(_done, services, run, step, request),)


def _texts(services: Services, run: str, request: ContrastRequest) -> list[list[str]]:
    with reading(services.database) as session:
        return read_texts(session, find_run(session, run), services.settings.data, request)


def _done(services: Services, run: str, step: Contrast, request: ContrastRequest) -> ContrastDoneEvent:
    with reading(services.database) as session:
        vocabulary = services.library.run(run).vocabulary
        return ContrastDoneEvent(result=contrast_result(session, find_run(session, run), step, request, vocabulary))
