"""Runs, and the metrics of one that is being fitted as they come."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from fastapi import APIRouter

from backend.database import reading
from backend.queries import runs as queries
from backend.schemas import MetricPoint, RunDetail, RunList, RunStatus, StatusChange
from backend.services import RunName, Services, ServicesDep
from backend.sse import Event, Events, EventStream, EventStreamJson, documented

POLL_SECONDS = 1.0

router = APIRouter(tags=["runs"])


@router.get("/runs")
def runs(services: ServicesDep) -> RunList:
    """All runs, the newest first."""
    with reading(services.store) as session:
        return queries.list_runs(session, services.library.is_fitting)


@router.get("/runs/{run}")
def run(run: RunName, services: ServicesDep) -> RunDetail:
    """One run with its settings and all its metrics."""
    with reading(services.store) as session:
        return queries.run_detail(session, run, services.library.is_fitting)


@router.get("/runs/{run}/events", response_class=EventStreamJson, responses=documented(MetricPoint | StatusChange))
async def run_events(run: RunName, services: ServicesDep, after: int | None = None) -> EventStream:
    """Server-sent events: ``status`` at once and when it changes, ``metric`` for each new one.

    Metrics are new that were measured after step ``after``, by default after those that are there now.
    """
    state = await asyncio.to_thread(look, services, run, after)
    return EventStream(follow(services, run, state))


class State(NamedTuple):
    """What a listener has been told of a run."""

    status: RunStatus
    metrics: tuple[MetricPoint, ...]
    last_step: int


def look(services: Services, name: str, after: int | None) -> State:
    """How a run stands, and its metrics after a step (None: none of those that are there).

    Raises:
        RunNotFoundError: the store has none of this name.
    """
    with reading(services.store) as session:
        record = queries.find_run(session, name)
        status = queries.status_of(record, services.library.is_fitting)
        if after is None:
            return State(status, (), queries.last_step(session, record))
        metrics = tuple(queries.point(metric) for metric in queries.metrics_after(session, record, after))
        return State(status, metrics, metrics[-1].step if metrics else after)


async def follow(services: Services, name: str, state: State) -> Events:
    """Tell what ``state`` says, then what changes, for as long as somebody listens."""
    shown: RunStatus | None = None
    while True:
        told: list[Event] = [("metric", metric) for metric in state.metrics]
        if state.status != shown:
            shown = state.status
            told.append(("status", StatusChange(status=shown)))
        if told:
            yield told
        await asyncio.sleep(POLL_SECONDS)
        state = await asyncio.to_thread(look, services, name, state.last_step)
