"""Runs: the live metrics of a run in training, its report, comparisons with other runs, and the contrast of texts."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep
from mxd.backend.api.event_stream import Event, Events, EventStream, stream_progress, streams
from mxd.backend.database.engine import reading
from mxd.backend.inference.run_loader import IMPORT_LOCK
from mxd.backend.inference.service import JobContext, in_steps
from mxd.backend.queries.contrasts import contrast_result, read_texts
from mxd.backend.queries.report import run_report
from mxd.backend.queries.runs import find_index, find_run, last_step, list_runs, metrics_after, run_detail, status_of
from mxd.backend.schemas.base import json_response
from mxd.backend.schemas.comparison import (
    WITH_EXAMPLES,
    ContrastDoneEvent,
    ContrastEvent,
    ContrastRequest,
    RunComparison,
)
from mxd.backend.schemas.runs import MetricPoint, Report, RunDetail, RunList, RunStatus, StatusChange
from mxd.trainer.analysis.results import Contrast
from mxd.trainer.config.analysis import ContrastConfig
from mxd.trainer.errors import UserError
from mxd.trainer.utils.callbacks import Steps

POLL_SECONDS = 1.0

router = APIRouter(tags=["runs"])
measurements = APIRouter(tags=["evaluations"])


@router.get("/runs")
def runs(services: ServicesDep) -> RunList:
    """All runs, newest first."""
    with reading(services.database) as session:
        return list_runs(session, services.runs.is_training)


@router.get("/runs/{run}")
def run(run: RunName, services: ServicesDep) -> RunDetail:
    """One run with its settings and all its metrics."""
    with services.reading(run) as (session, record):
        return run_detail(session, record, services.runs.is_training)


@router.get("/runs/{run}/events", **streams(MetricPoint | StatusChange))
async def run_events(
    run: RunName, services: ServicesDep, after: Annotated[int | None, Query(ge=-1, lt=2**31)] = None
) -> EventStream:
    """Server-sent events: ``status`` first and on change, ``metric`` for each new one.

    Only metrics after step ``after`` are sent, by default those that arrive from now on.
    """
    state = await asyncio.to_thread(look, services, run, after)
    return EventStream(follow(services, run, state))


State = tuple[RunStatus, list[MetricPoint], int]
"""Status of a run, metrics that are new, and the step of the newest."""


def look(services: Services, run: str, after: int | None) -> State:
    """Return the state of a run since a step (None: no metrics)."""
    with services.reading(run) as (session, record):
        status = status_of(record, services.runs.is_training)
        if after is None:
            return status, [], last_step(session, record)
        metrics = list(map(MetricPoint.of, metrics_after(session, record, after)))
        return status, metrics, metrics[-1].step if metrics else after


async def follow(services: Services, run: str, state: State) -> Events:
    """Yield ``state``, then changes, while the client is connected."""
    shown: RunStatus | None = None
    while True:
        status, metrics, step = state
        events: list[Event] = [("metric", metric) for metric in metrics]
        if status != shown:
            shown = status
            events.append(("status", StatusChange(status=shown)))
        if events:
            yield events
        await asyncio.sleep(POLL_SECONDS)
        state = await asyncio.to_thread(look, services, run, step)


@measurements.get("/runs/{run}/report")
def report(run: RunName, services: ServicesDep) -> Report:
    """Everything measured of a run, the benchmark, and all runs of its MLP side by side."""
    with services.reading(run) as (session, record):
        return run_report(session, record, services.settings.data)


OtherName = Annotated[str, Path(max_length=200, description="Name of the run to compare with.")]


@measurements.get("/runs/{run}/comparison/{other}", response_model=RunComparison)
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
        return json_response(run_comparison(session, one, two, matches, vocabularies))


@measurements.post("/runs/{run}/contrast", **streams(ContrastEvent))
async def contrast(run: RunName, request: ContrastRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` after each step, then ``done`` with the experts, or ``error``.

    Closing the connection cancels. Nothing is stored.
    """

    def done(counted: Callable[[], Contrast]) -> ContrastDoneEvent:
        vocabulary = services.runs.run(run).vocabulary
        result = counted()
        with services.reading(run) as (session, record):
            found = contrast_result(session, record, result, request, vocabulary)
        return ContrastDoneEvent(result=found)

    settings = request.model_dump(include={"tokens", "min_tokens", "min_units", "seed"})
    config = ContrastConfig(**settings, shown=min(request.limit, WITH_EXAMPLES))
    texts = await services.read(run, read_texts, services.settings.data, request)
    steps = in_steps(services.inference, [run], 1, contrast_steps, texts, config)
    return await stream_progress(steps, done)


SEQUENCES_PER_STEP = 8
"""Size of the steps of a contrast: small, so that other requests wait only briefly."""


def contrast_steps(
    context: JobContext, texts: Sequence[Sequence[str]], config: ContrastConfig
) -> Steps[Callable[[], Contrast]]:
    """Steps of a contrast, and then the function that counts, which needs no language model."""
    from mxd.trainer.analysis.contrast import NamedText, contrast_in_steps, shuffled

    a, b = (NamedText(name, shuffled(documents, config.seed)) for name, documents in zip("AB", texts, strict=True))
    return contrast_in_steps(context.runs[0], a, b, config, context.language_model, SEQUENCES_PER_STEP)
