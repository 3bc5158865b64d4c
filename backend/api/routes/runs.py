"""Runs, and the live metrics of a run in training."""

from __future__ import annotations

import asyncio
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query

from mxd.backend.api.dependencies import RunName, Services, ServicesDep
from mxd.backend.api.event_stream import Event, Events, EventStream, EventStreamJson, stream_responses
from mxd.backend.database.engine import reading
from mxd.backend.queries import runs as queries
from mxd.backend.schemas.runs import MetricPoint, RunDetail, RunList, RunStatus, StatusChange

POLL_SECONDS = 1.0

router = APIRouter(tags=["runs"])


@router.get("/runs")
def runs(services: ServicesDep) -> RunList:
    """All runs, newest first."""
    with reading(services.database) as session:
        return queries.list_runs(session, services.runs.is_training)


@router.get("/runs/{run}")
def run(run: RunName, services: ServicesDep) -> RunDetail:
    """One run with its settings and all its metrics."""
    with reading(services.database) as session:
        return queries.run_detail(session, run, services.runs.is_training)


@router.get(
    "/runs/{run}/events", response_class=EventStreamJson, responses=stream_responses(MetricPoint | StatusChange)
)
async def run_events(
    run: RunName, services: ServicesDep, after: Annotated[int | None, Query(ge=-1, lt=2**31)] = None
) -> EventStream:
    """Server-sent events: ``status`` first and on change, ``metric`` for each new one.

    Only metrics after step ``after`` are sent, by default those that arrive from now on.
    """
    state = await asyncio.to_thread(look, services, run, after)
    return EventStream(follow(services, run, state))


class State(NamedTuple):
    """State already sent to a client."""

    status: RunStatus
    metrics: tuple[MetricPoint, ...]
    last_step: int


def look(services: Services, name: str, after: int | None) -> State:
    """Return the status of a run and its metrics after a step (None: no metrics). Raises RunNotFoundError if the
    database has no such run."""
    with reading(services.database) as session:
        record = queries.find_run(session, name)
        status = queries.status_of(record, services.runs.is_training)
        if after is None:
            return State(status, (), queries.last_step(session, record))
        metrics = tuple(queries.point(metric) for metric in queries.metrics_after(session, record, after))
        return State(status, metrics, metrics[-1].step if metrics else after)


async def follow(services: Services, name: str, state: State) -> Events:
    """Yield ``state``, then changes, while the client is connected."""
    shown: RunStatus | None = None
    while True:
        events: list[Event] = [("metric", metric) for metric in state.metrics]
        if state.status != shown:
            shown = state.status
            events.append(("status", StatusChange(status=shown)))
        if events:
            yield events
        await asyncio.sleep(POLL_SECONDS)
        state = await asyncio.to_thread(look, services, name, state.last_step)
