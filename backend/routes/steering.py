"""Steered generation, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from fastapi import APIRouter

from backend.database import reading
from backend.engine import Waiting
from backend.queries.experts import check_expert, units
from backend.queries.runs import find_run
from backend.schemas import (
    DoneEvent,
    ProgressEvent,
    StartEvent,
    SteeringEvent,
    SteeringRequest,
    TokenEvent,
)
from backend.services import RunName, Services, ServicesDep
from backend.sse import Event, Events, EventStream, EventStreamJson, documented
from trainer.steering import Done, NewToken, Started, SteeringStep

router = APIRouter(prefix="/runs/{run}", tags=["steering"])

EVENTS: Mapping[type, type[StartEvent | ProgressEvent | TokenEvent | DoneEvent]] = {
    Started: StartEvent,
    Waiting: ProgressEvent,
    NewToken: TokenEvent,
    Done: DoneEvent,
}


@router.post("/steering", response_class=EventStreamJson, responses=documented(SteeringEvent))
async def steer(run: RunName, request: SteeringRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``start``, then ``token`` for each new token of either arm, then ``done`` or ``error``."""
    units_of = await asyncio.to_thread(_units, services, run, request)
    steps = services.live.steer(list(units_of), request, units_of)
    # What is wrong with the request shows before the first step: it becomes a status, not an event.
    first = await anext(steps)
    return EventStream(_events(first, steps))


def _units(services: Services, run: str, request: SteeringRequest) -> dict[str, dict[int, float]]:
    """The units of every edited expert, by run; the run that is steered comes first."""
    experts: dict[str, set[int]] = {run: set()}
    for edit in request.edits:
        experts.setdefault(edit.run or run, set()).add(edit.expert)
    with reading(services.store) as session:
        records = {name: find_run(session, name) for name in experts}
        for name, edited in experts.items():
            for expert in edited:
                check_expert(records[name], expert)
        return {name: units(session, records[name], edited) for name, edited in experts.items()}


async def _events(first: SteeringStep | Waiting, steps: AsyncGenerator[SteeringStep | Waiting, None]) -> Events:
    async with aclosing(steps):
        yield _event(first)
        async for step in steps:
            yield _event(step)


def _event(step: SteeringStep | Waiting) -> Event:
    event = EVENTS[type(step)].model_validate(step, from_attributes=True)
    return event.event, event
