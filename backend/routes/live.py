"""What can be done live with a run, and routing through several layers at once."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from backend.answers import plain
from backend.database import reading
from backend.leaving import while_connected
from backend.live import Routed
from backend.queries.live import live_options
from backend.queries.runs import find_run
from backend.routes.routing import described
from backend.schemas import JointRoutingRequest, JointRoutingResponse, LiveOptions
from backend.services import RunName, Services, ServicesDep, prompt_text

router = APIRouter(tags=["routing"])


@router.get("/runs/{run}/live")
def options(run: RunName, services: ServicesDep) -> LiveOptions:
    """Runs of other layers that can be watched together with this one, and whether prompts can be chat turns."""
    with reading(services.store) as session:
        return live_options(session, services.library, run)


@router.post("/routing", response_model=JointRoutingResponse)
async def route_together(request: JointRoutingRequest, services: ServicesDep, http: Request) -> Response:
    """The routing of one text through several layers of a language model, in one forward pass."""
    await asyncio.to_thread(_check, services, request)
    text = await asyncio.to_thread(prompt_text, services, request.runs[0], request.text, request.turns)
    routed = await while_connected(http, services.live.route(request.runs, text, request.k))
    return plain(await asyncio.to_thread(_answer, services, routed))


def _check(services: Services, request: JointRoutingRequest) -> None:
    with reading(services.store) as session:
        for run in request.runs:
            find_run(session, run)


def _answer(services: Services, routed: Routed) -> dict[str, Any]:
    routings = [described(services, routing, routed) for routing in routed.routings]
    return {"routings": routings, "took_ms": routed.took_ms}
