"""Steered generation, token by token, and dose curves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import APIRouter

from mxd.backend.api.dependencies import RunName, Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import EventStream, EventStreamJson, stream_responses, stream_steps
from mxd.backend.database.engine import reading
from mxd.backend.queries.steering_units import units_of
from mxd.backend.schemas.steering import DoseEvent, DoseRequest, ProgressEvent, SteeringEvent, SteeringRequest
from mxd.trainer.config import DoseConfig, SteeringConfig
from mxd.trainer.inference.index_values import with_control, with_medians
from mxd.trainer.inference.results import DoseProgressEvent, DoseStep

router = APIRouter(prefix="/runs/{run}", tags=["steering"])

Config = TypeVar("Config", bound=SteeringConfig)


@router.post("/steering", response_class=EventStreamJson, responses=stream_responses(SteeringEvent))
async def steer(run: RunName, request: SteeringRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``start``, ``token`` for each new token of either variant, then ``done`` or ``error``."""
    config, units = await prepared(services, run, request, SteeringConfig)
    return await stream_steps(services.live.generate(list(units), config, units))


@router.post("/steering/dose", response_class=EventStreamJson, responses=stream_responses(DoseEvent))
async def dose(run: RunName, request: DoseRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` while one edit is tried at several strengths in one batch, then ``done``.

    A control expert of similar density is tried at the same strengths.
    """
    config, units = await prepared(services, run, request, DoseConfig)
    return await stream_steps(_with_queue_position(services.live.generate(list(units), config, units)))


async def prepared(
    services: Services, run: str, request: SteeringRequest | DoseRequest, kind: type[Config]
) -> tuple[Config, dict[str, dict[int, float]]]:
    """Return the trainer's configuration, with chat turns as text, and the units of its experts, by run."""
    request, units = await asyncio.to_thread(_resolved, services, run, request)
    prompt = await prompt_text(services, run, request.prompt, request.turns)
    settings = {name: getattr(request, name) for name in kind.model_fields}
    return kind(**{**settings, "prompt": prompt}), units


def _resolved(
    services: Services, run: str, request: SteeringRequest | DoseRequest
) -> tuple[SteeringRequest | DoseRequest, dict[str, dict[int, float]]]:
    """Return the request with its control expert and the medians of its experts, and their units, by run."""
    with reading(services.database) as session:
        if isinstance(request, DoseRequest):
            request = with_control(session, request, run)
        units = units_of(session, services.library, run, request)
        return with_medians(session, request, run), units


async def _with_queue_position(
    steps: AsyncGenerator[Sequence[Any], None],
) -> AsyncGenerator[Sequence[DoseStep], None]:
    """A waiting sweep has made no progress yet."""
    async with aclosing(steps):
        async for together in steps:
            yield [
                DoseProgressEvent(0, 0, step.queue_position) if isinstance(step, ProgressEvent) else step
                for step in together
            ]
