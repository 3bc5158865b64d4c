"""The report on a run, the comparison of runs, and the contrast of texts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, ServicesDep
from mxd.backend.api.event_stream import EventStream, EventStreamJson, stream_responses, stream_steps
from mxd.backend.database.engine import reading
from mxd.backend.inference.run_loader import IMPORT_LOCK
from mxd.backend.inference.service import contrast_steps
from mxd.backend.queries.contrasts import contrast_result, read_texts
from mxd.backend.queries.report import run_report
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.responses import model_response
from mxd.backend.schemas.comparison import (
    WITH_EXAMPLES,
    ContrastDoneEvent,
    ContrastEvent,
    ContrastProgressEvent,
    ContrastRequest,
    RunComparison,
)
from mxd.backend.schemas.report import Report
from mxd.trainer.analysis.results import Contrast
from mxd.trainer.config import ContrastConfig
from mxd.trainer.errors import UserError

router = APIRouter(tags=["evaluations"])


@router.get("/runs/{run}/report")
def report(run: RunName, services: ServicesDep) -> Report:
    """Everything measured of a run, the benchmark, and all runs of its MLP side by side."""
    with reading(services.database) as session:
        return run_report(session, find_run(session, run), services.settings.data)


OtherName = Annotated[str, Path(max_length=200, description="Name of the run to compare with.")]


@router.get("/runs/{run}/comparison/{other}", response_model=RunComparison)
def comparison(run: RunName, other: OtherName, services: ServicesDep) -> Response:
    """The densest experts of a run, each with the most similar expert of another run, and the similarity by chance."""
    with reading(services.database) as session:
        one, two = find_run(session, run), find_run(session, other)
        if one.id == two.id:
            raise UserError(f"{run} cannot be compared with itself. Choose another run.")

        # New indexes or new weights of either run change the matches.
        stamp = [(find_index(session, each).created_at, services.runs.fingerprint(each.name)) for each in (one, two)]
        with IMPORT_LOCK:
            from mxd.backend.queries.matching import match_experts, run_comparison
        matches = services.matches.get(
            (one.id, two.id), tuple(stamp), lambda: match_experts(session, one, two, services.runs)
        )
        vocabularies = [services.runs.run(name).vocabulary for name in (run, other)]
        return model_response(run_comparison(session, one, two, matches, vocabularies))


Steps = AsyncGenerator[Sequence[ContrastProgressEvent | ContrastDoneEvent], None]


@router.post("/runs/{run}/contrast", response_class=EventStreamJson, responses=stream_responses(ContrastEvent))
async def contrast(run: RunName, request: ContrastRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` after each step, then ``done`` with the experts, or ``error``.

    Closing the connection cancels. Nothing is stored.
    """

    def texts() -> list[list[str]]:
        with reading(services.database) as session:
            return read_texts(session, find_run(session, run), services.settings.data, request)

    def done(result: Contrast) -> ContrastDoneEvent:
        vocabulary = services.runs.run(run).vocabulary
        with reading(services.database) as session:
            found = contrast_result(session, find_run(session, run), result, request, vocabulary)
        return ContrastDoneEvent(result=found)

    async def steps() -> Steps:
        settings = request.model_dump(include={"tokens", "min_tokens", "min_units", "seed"})
        config = ContrastConfig(**settings, shown=min(request.limit, WITH_EXAMPLES))
        measured = contrast_steps(services.inference, run, await run_in_threadpool(texts), config)
        async with aclosing(measured):
            async for step in measured:
                yield (step if isinstance(step, ContrastProgressEvent) else await asyncio.to_thread(done, step),)

    return await stream_steps(steps())
