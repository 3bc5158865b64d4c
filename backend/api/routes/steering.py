"""Steered generation, token by token, and dose curves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import APIRouter

from mxd.backend.api.dependencies import RunName, Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import Event, Events, EventStream, EventStreamJson, stream_responses
from mxd.backend.database.engine import reading
from mxd.backend.inference.worker import QueuePosition
from mxd.backend.queries.steering_units import units_of
from mxd.backend.schemas import (
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
from mxd.trainer.config import DoseConfig, SteeringConfig
from mxd.trainer.inference.medians import with_medians
from mxd.trainer.inference.steering_events import Done, DoseProgress, DoseStep, NewToken, Started, SteeringStep

router = APIRouter(prefix="/runs/{run}", tags=["steering"])

Config = TypeVar("Config", bound=SteeringConfig)

EVENTS: Mapping[type, type[StartEvent | ProgressEvent | DoneEvent]] = {
    Started: StartEvent,
    QueuePosition: ProgressEvent,
    Done: DoneEvent,
}


@router.post("/steering", response_class=EventStreamJson, responses=stream_responses(SteeringEvent))
async def steer(run: RunName, request: SteeringRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``start``, ``token`` for each new token of either variant, then ``done`` or ``error``."""
    config, units = await asyncio.to_thread(prepared, services, run, request, SteeringConfig)
    return await _stream(services.live.generate(list(units), config, units), _event)


@router.post("/steering/dose", response_class=EventStreamJson, responses=stream_responses(DoseEvent))
async def dose(run: RunName, request: DoseRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` while one edit is tried at several strengths in one batch, then ``done``."""
    config, units = await asyncio.to_thread(prepared, services, run, request, DoseConfig)
    return await _stream(services.live.generate(list(units), config, units), _dose_event)


def prepared(
    services: Services, run: str, request: SteeringRequest | DoseRequest, kind: type[Config]
) -> tuple[Config, dict[str, dict[int, float]]]:
    """Return the trainer's configuration, with chat turns as text, and the units of its experts, by run."""
    with reading(services.database) as session:
        units = units_of(session, services.library, run, request)
        request = with_medians(session, request, run)
    prompt = prompt_text(services, run, request.prompt, request.turns)
    settings = {name: getattr(request, name) for name in kind.model_fields}
    return kind(**{**settings, "prompt": prompt}), units


async def _stream(steps: AsyncGenerator[Sequence[Any], None], event: Callable[[Any], Event]) -> EventStream:
    # Errors before the first step become a status code, not an event.
    first = await anext(steps)
    return EventStream(_events(first, steps, event))


async def _events(
    first: Sequence[Any], steps: AsyncGenerator[Sequence[Any], None], event: Callable[[Any], Event]
) -> Events:
    async with aclosing(steps):
        yield [event(step) for step in first]
        async for together in steps:
            yield [event(step) for step in together]


def _event(step: SteeringStep | QueuePosition) -> Event:
    if isinstance(step, NewToken):
        return "token", _token(step)
    event = EVENTS[type(step)].model_validate(step, from_attributes=True)
    return event.event, event


def _token(step: NewToken) -> dict[str, Any]:
    """Return plain data in the shape of ``TokenEvent``; validation would delay the next token."""
    named = {
        name: [each._asdict() for each in getattr(step, name)]
        for name in ("alternatives", "other_alternatives", "experts")
    }
    return {"event": "token", **vars(step), **named}


def _dose_event(step: DoseStep | QueuePosition) -> Event:
    if isinstance(step, QueuePosition):
        return "progress", DoseProgressEvent(tokens=0, total=0, queue_position=step.queue_position)
    if isinstance(step, DoseProgress):
        return "progress", DoseProgressEvent(tokens=step.tokens, total=step.total, queue_position=0)
    return "done", DoseDoneEvent.model_validate(step, from_attributes=True)
