"""Routing through several layers in one forward pass."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.api.routes.routing import described
from mxd.backend.database.engine import reading
from mxd.backend.inference import jobs
from mxd.backend.inference.jobs import JobResult
from mxd.backend.queries.runs import find_run
from mxd.backend.queries.steering_units import live_options
from mxd.backend.responses import json_response
from mxd.backend.schemas.routing import JointRoutingRequest, JointRoutingResponse, LiveOptions

if TYPE_CHECKING:
    from mxd.trainer.inference.results import Routing

router = APIRouter(tags=["routing"])


@router.get("/runs/{run}/live")
def options(run: RunName, services: ServicesDep) -> LiveOptions:
    """Runs of other layers that can be routed together with this one, and whether chat turns are supported."""
    with reading(services.database) as session:
        return live_options(session, services.library, run)


@router.post("/routing", response_model=JointRoutingResponse)
async def route_together(request: JointRoutingRequest, services: ServicesDep, http: Request) -> Response:
    """Routing of one text through several layers of a language model, in one forward pass."""
    await asyncio.to_thread(_check, services, request)
    text = await prompt_text(services, request.runs[0], request.text, request.turns)
    routed = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.route, text, request.k))
    return json_response(await asyncio.to_thread(_answer, services, routed))


def _check(services: Services, request: JointRoutingRequest) -> None:
    with reading(services.database) as session:
        for run in request.runs:
            find_run(session, run)


def _answer(services: Services, routed: JobResult[tuple[Routing, ...]]) -> dict[str, Any]:
    routings = [described(services, routing, routed) for routing in routed.value]
    return {"routings": routings, "took_ms": routed.took_ms}
