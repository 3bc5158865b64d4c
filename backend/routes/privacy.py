"""Passages on which the language model shall be unsure."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from fastapi import APIRouter, Request

from backend.database import reading
from backend.leaving import while_connected
from backend.protecting import Protecting, Told
from backend.queries.privacy import protected_runs
from backend.queries.runs import find_run
from backend.schemas import PrivacyList, ProtectEvent, ProtectRequest, SureTokensRequest, SureTokensResponse
from backend.services import RunName, Services, ServicesDep
from backend.sse import Events, EventStream, EventStreamJson, documented

router = APIRouter(tags=["privacy"])


@router.get("/runs/{run}/privacy")
def protected(run: RunName, services: ServicesDep) -> PrivacyList:
    """What protects passages and began as this run, or is this run, with what was measured; the newest first."""
    with reading(services.store) as session:
        return protected_runs(session, find_run(session, run))


@router.post("/privacy", response_class=EventStreamJson, responses=documented(ProtectEvent))
async def protect(request: ProtectRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` after each step, then ``done`` once new runs are written, or ``error``.

    Closing the connection ends it; nothing is written then.
    """
    steps = _protecting(services).protect(request)
    # What is wrong with the request shows before the first step: it becomes a status, not an event.
    first = await anext(steps)
    return EventStream(_events(first, steps))


@router.post("/privacy/tokens")
async def sure_tokens(request: SureTokensRequest, services: ServicesDep, http: Request) -> SureTokensResponse:
    """How sure every token of a text is, with some runs in place of their MLPs and with others."""
    return await while_connected(http, _protecting(services).tokens(request))


def _protecting(services: Services) -> Protecting:
    return Protecting(services.live, services.store, services.settings)


async def _events(first: Sequence[Told], steps: AsyncGenerator[Sequence[Told], None]) -> Events:
    async with aclosing(steps):
        yield [(step.event, step) for step in first]
        async for together in steps:
            yield [(step.event, step) for step in together]
