"""Routing of a text."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import reading
from mxd.backend.inference import jobs
from mxd.backend.inference.jobs import JobResult
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.queries.experts import known
from mxd.backend.queries.passage_search import passage_result
from mxd.backend.queries.runs import find_run
from mxd.backend.responses import json_response, model_response
from mxd.backend.schemas.routing import (
    EffectsRequest,
    EffectsResponse,
    PredictionsRequest,
    PredictionsResponse,
    RoutedExpertInfo,
    RoutingRequest,
    RoutingResponse,
)
from mxd.backend.schemas.search import PassageRequest, PassageResult

if TYPE_CHECKING:
    from mxd.trainer.inference.results import Routing

router = APIRouter(prefix="/runs/{run}", tags=["routing"])

TOP_TOKENS = 3


@router.post("/routing", response_model=RoutingResponse)
async def route(run: RunName, request: RoutingRequest, services: ServicesDep, http: Request) -> Response:
    """Active experts on each token of a text.

    Cancelled when the client closes the connection before its turn.
    """
    await asyncio.to_thread(_check, services, run)
    # Waiting for the language model must not occupy the threads that browsing needs.
    text = await prompt_text(services, run, request.text, request.turns)
    routed = await cancel_on_disconnect(http, services.live.submit([run], jobs.route, text, request.k))
    return json_response(await asyncio.to_thread(described, services, routed.value[0], routed))


@router.post("/routing/predictions", response_model=PredictionsResponse)
async def predictions(run: RunName, request: PredictionsRequest, services: ServicesDep, http: Request) -> Response:
    """Next-token distributions at each token of a text, with the original MLP and with the layer in its place."""
    runs = [run, *request.others]
    for name in runs:
        await asyncio.to_thread(_check, services, name)
    text = await prompt_text(services, run, request.text, request.turns)
    result = await cancel_on_disconnect(http, services.live.submit(runs, jobs.predict, text, request.k))
    return json_response({"run": run, "tokens": result.value.tokens, "took_ms": result.took_ms})


@router.post("/routing/effects")
async def effects(run: RunName, request: EffectsRequest, services: ServicesDep, http: Request) -> EffectsResponse:
    """Direct effect of each active expert on a token on the next-token prediction."""
    await asyncio.to_thread(_check, services, run)
    text = await prompt_text(services, run, request.text, request.turns)
    job = services.live.submit([run], jobs.direct_effects, text, request.position, request.k)
    experts = (await cancel_on_disconnect(http, job)).value
    return EffectsResponse(run=run, position=request.position, experts=experts)


@router.post("/search/passage", response_model=PassageResult)
async def search_passage(run: RunName, request: PassageRequest, services: ServicesDep, http: Request) -> Response:
    """Experts that fire on a passage, or on one of its tokens."""
    await asyncio.to_thread(_check, services, run)
    text = await prompt_text(services, run, request.text, request.turns)
    routed = await cancel_on_disconnect(http, services.live.submit([run], jobs.route, text))
    return await asyncio.to_thread(_passage, services, run, request, routed)


def _passage(services: Services, run: str, request: PassageRequest, routed: JobResult[tuple[Routing, ...]]) -> Response:
    vocabulary = services.library.run(run).vocabulary
    with reading(services.database) as session:
        record = find_run(session, run)
        return model_response(passage_result(session, record, routed.value[0], request, vocabulary, routed.took_ms))


def _check(services: Services, run: str) -> None:
    with reading(services.database) as session:
        find_run(session, run)


def described(services: Services, routing: Routing, routed: JobResult[tuple[Routing, ...]]) -> dict[str, Any]:
    """Return a routing in the shape of ``RoutingResponse``, with what is known about its experts."""
    experts = {expert.expert for token in routing.tokens for expert in token.experts}
    return {
        "run": routing.run,
        "tokens": routing.tokens,
        "experts": expert_infos(services, routing.run, experts),
        "max_tokens": routed.max_tokens,
        "took_ms": routed.took_ms,
    }


def expert_infos(services: Services, run: str, experts: set[int]) -> dict[int, RoutedExpertInfo]:
    """Return labels and, if there is an index, densities and top tokens of experts."""
    vocabulary = services.library.run(run).vocabulary
    with reading(services.database) as session:
        record = find_run(session, run)
        labels, automatic = notes.labels_of(session, run, experts), shown_labels(session, record, experts)
        records = known(session, record, experts)
    result = {}
    for expert in sorted(experts):
        statistics = records.get(expert)
        top_tokens = statistics.top_tokens[:TOP_TOKENS] if statistics else []
        result[expert] = RoutedExpertInfo(
            label=labels.get(expert),
            automatic=automatic.get(expert),
            density=statistics.density if statistics else None,
            max_activation=statistics.max_activation if statistics else None,
            top_tokens=tuple(vocabulary.name(token) for token, _ in top_tokens),
        )
    return result
