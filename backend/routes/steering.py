"""Steered generation, token by token, and dose curves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import APIRouter

from backend.database import reading
from backend.engine import Waiting
from backend.queries.steering import units_of
from backend.schemas import (
    DoneEvent,
    DoseDoneEvent,
    DoseEvent,
    DoseProgressEvent,
    DoseRequest,
    ProgressEvent,
    StartEvent,
    SteeringEvent,
    SteeringRequest,
)
from backend.services import RunName, Services, ServicesDep, prompt_text
from backend.sse import Event, Events, EventStream, EventStreamJson, documented
from trainer.config import DoseConfig, SteeringConfig
from trainer.dose_curve import DoseProgress, DoseStep
from trainer.steps import Done, NewToken, Started, SteeringStep

router = APIRouter(prefix="/runs/{run}", tags=["steering"])

Config = TypeVar("Config", bound=SteeringConfig)

EVENTS: Mapping[type, type[StartEvent | ProgressEvent | DoneEvent]] = {
    Started: StartEvent,
    Waiting: ProgressEvent,
    Done: DoneEvent,
}


@router.post("/steering", response_class=EventStreamJson, responses=documented(SteeringEvent))
async def steer(run: RunName, request: SteeringRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``start``, then ``token`` for each new token of either arm, then ``done`` or ``error``."""
    config, units = await asyncio.to_thread(_prepared, services, run, request, SteeringConfig)
    return await _stream(services.live.steer(list(units), config, units), _event)


@router.post("/steering/dose", response_class=EventStreamJson, responses=documented(DoseEvent))
async def dose(run: RunName, request: DoseRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` while one edit is tried at several strengths in one batch, then ``done``."""
    config, units = await asyncio.to_thread(_prepared, services, run, request, DoseConfig)
    return await _stream(services.live.dose(list(units), config, units), _dose_event)


def _prepared(
    services: Services, run: str, request: SteeringRequest | DoseRequest, kind: type[Config]
) -> tuple[Config, dict[str, dict[int, float]]]:
    """The trainer's configuration, with chat turns as text, and the units of every edited expert, by run."""
    with reading(services.store) as session:
        units = units_of(session, services.library, run, request)
    prompt = prompt_text(services, run, request.prompt, request.turns)
    settings = {name: getattr(request, name) for name in kind.model_fields}
    return kind(**{**settings, "prompt": prompt}), units


async def _stream(steps: AsyncGenerator[Sequence[Any], None], event: Callable[[Any], Event]) -> EventStream:
    # What is wrong with the request shows before the first step: it becomes a status, not an event.
    first = await anext(steps)
    return EventStream(_events(first, steps, event))


async def _events(
    first: Sequence[Any], steps: AsyncGenerator[Sequence[Any], None], event: Callable[[Any], Event]
) -> Events:
    async with aclosing(steps):
        yield [event(step) for step in first]
        async for together in steps:
            yield [event(step) for step in together]


def _event(step: SteeringStep | Waiting) -> Event:
    if isinstance(step, NewToken):
        return "token", _token(step)
    event = EVENTS[type(step)].model_validate(step, from_attributes=True)
    return event.event, event


def _token(step: NewToken) -> dict[str, Any]:
    """In the shape of ``TokenEvent``: it is in the way of the next token, and has nothing to be checked."""
    named = {
        name: [each._asdict() for each in getattr(step, name)]
        for name in ("alternatives", "other_alternatives", "experts")
    }
    return {"event": "token", **vars(step), **named}


def _dose_event(step: DoseStep | Waiting) -> Event:
    if isinstance(step, Waiting):
        return "progress", DoseProgressEvent(tokens=0, of=0, before=step.before)
    if isinstance(step, DoseProgress):
        return "progress", DoseProgressEvent(tokens=step.tokens, of=step.of, before=0)
    return "done", DoseDoneEvent.model_validate(step, from_attributes=True)
