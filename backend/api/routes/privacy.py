"""Privacy fine-tuning: make next-token predictions on chosen passages uncertain."""

from __future__ import annotations

from fastapi import APIRouter, Request

from mxd.backend.api.dependencies import RunName, Services, ServicesDep
from mxd.backend.api.event_stream import (
    EventStream,
    EventStreamJson,
    cancel_on_disconnect,
    stream_responses,
    stream_steps,
)
from mxd.backend.api.privacy_service import PrivacyService
from mxd.backend.database.engine import reading
from mxd.backend.queries.privacy import protected_runs
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas import ConfidenceRequest, ConfidenceResponse, PrivacyList, ProtectEvent, ProtectRequest

router = APIRouter(tags=["privacy"])


@router.get("/runs/{run}/privacy")
def protected(run: RunName, services: ServicesDep) -> PrivacyList:
    """Privacy results of a run and of the runs made from it, newest first."""
    with reading(services.database) as session:
        return protected_runs(session, find_run(session, run))


@router.post("/privacy", response_class=EventStreamJson, responses=stream_responses(ProtectEvent))
async def protect(request: ProtectRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` after each step, then ``done`` when new runs are written, or ``error``.

    Closing the connection cancels; nothing is written then.
    """
    return await stream_steps(_privacy_service(services).protect(request))


@router.post("/privacy/tokens")
async def sure_tokens(request: ConfidenceRequest, services: ServicesDep, http: Request) -> ConfidenceResponse:
    """Confidence of every next-token prediction of a text, with two sets of runs spliced in."""
    return await cancel_on_disconnect(http, _privacy_service(services).tokens(request))


def _privacy_service(services: Services) -> PrivacyService:
    return PrivacyService(services.live, services.database, services.settings)
