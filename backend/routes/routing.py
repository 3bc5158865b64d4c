"""Routing of a text."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from backend import notes
from backend.answers import plain, written
from backend.database import reading
from backend.leaving import while_connected
from backend.live import Routed
from backend.queries.automatic import shown_labels
from backend.queries.experts import known
from backend.queries.passages import passage_result
from backend.queries.runs import find_run
from backend.schemas import (
    EffectsRequest,
    EffectsResponse,
    ExpertEffect,
    PassageRequest,
    PassageResult,
    PredictionsResponse,
    RoutedExpertInfo,
    RoutingRequest,
    RoutingResponse,
)
from backend.services import RunName, Services, ServicesDep, prompt_text

if TYPE_CHECKING:
    from trainer.routing import RoutedExpert, Routing

router = APIRouter(prefix="/runs/{run}", tags=["routing"])

TOP_TOKENS = 3


@router.post("/routing", response_model=RoutingResponse)
async def route(run: RunName, request: RoutingRequest, services: ServicesDep, http: Request) -> Response:
    """Which experts are active on each token of a text.

    Given up when the client closes the connection before its turn has come.
    """
    await asyncio.to_thread(_check, services, run)
    # Waiting for the language model takes none of the threads that browsing needs.
    text = await asyncio.to_thread(prompt_text, services, run, request.text, request.turns)
    routed = await while_connected(http, services.live.route([run], text, request.k))
    return plain(await asyncio.to_thread(described, services, routed.routings[0], routed))


@router.post("/routing/predictions", response_model=PredictionsResponse)
async def predictions(run: RunName, request: RoutingRequest, services: ServicesDep, http: Request) -> Response:
    """What the language model expects after each token of a text, with its own MLP and with the layer in its place."""
    await asyncio.to_thread(_check, services, run)
    text = await asyncio.to_thread(prompt_text, services, run, request.text, request.turns)
    found = await while_connected(http, services.live.predict(run, text, request.k))
    tokens = [
        {"kl": token.kl, "predictions": [prediction._asdict() for prediction in token.predictions]}
        for token in found.predictions.tokens
    ]
    return plain({"run": run, "tokens": tokens, "took_ms": found.took_ms})


@router.post("/routing/effects")
async def effects(run: RunName, request: EffectsRequest, services: ServicesDep, http: Request) -> EffectsResponse:
    """What each expert that is active on a token does, by itself, to the prediction of the next one."""
    await asyncio.to_thread(_check, services, run)
    text = await asyncio.to_thread(prompt_text, services, run, request.text, request.turns)
    found = await while_connected(http, services.live.effects(run, text, request.position, request.k))
    experts = tuple(ExpertEffect.model_validate(effect, from_attributes=True) for effect in found)
    return EffectsResponse(run=run, position=request.position, experts=experts)


@router.post("/search/passage", response_model=PassageResult)
async def search_passage(run: RunName, request: PassageRequest, services: ServicesDep, http: Request) -> Response:
    """Which experts fire on a passage, whole or at one of its tokens."""
    await asyncio.to_thread(_check, services, run)
    text = await asyncio.to_thread(prompt_text, services, run, request.text, request.turns)
    routed = await while_connected(http, services.live.route([run], text))
    return await asyncio.to_thread(_passage, services, run, request, routed)


def _passage(services: Services, run: str, request: PassageRequest, routed: Routed) -> Response:
    vocabulary = services.library.run(run).vocabulary
    with reading(services.store) as session:
        record = find_run(session, run)
        return written(passage_result(session, record, routed.routings[0], request, vocabulary, routed.took_ms))


def _check(services: Services, run: str) -> None:
    with reading(services.store) as session:
        find_run(session, run)


def _told(routed: RoutedExpert) -> dict[str, Any]:
    """An expert as it travels: there are hundreds in an answer, so what is empty is left out."""
    told = routed._asdict()
    return told if routed.shares else {name: value for name, value in told.items() if name != "shares"}


def described(services: Services, routing: Routing, routed: Routed) -> dict[str, Any]:
    """A routing as it travels, in the shape of ``RoutingResponse``, with what is known of the experts in it."""
    tokens = [
        {
            "id": token.id,
            "text": token.text,
            "start": token.start,
            "experts": [_told(expert) for expert in token.experts],
        }
        for token in routing.tokens
    ]
    experts = {expert.expert for token in routing.tokens for expert in token.experts}
    return {
        "run": routing.run,
        "tokens": tokens,
        "experts": expert_infos(services, routing.run, experts),
        "max_tokens": routed.max_tokens,
        "took_ms": routed.took_ms,
    }


def expert_infos(services: Services, run: str, experts: set[int]) -> dict[int, RoutedExpertInfo]:
    """What is known of experts: labels, and where there is an index, usage and top tokens."""
    vocabulary = services.library.run(run).vocabulary
    with reading(services.store) as session:
        record = find_run(session, run)
        labels, automatic = notes.labels_of(session, run, experts), shown_labels(session, record, experts)
        records = known(session, record, experts)
    found = {}
    for expert in sorted(experts):
        statistics = records.get(expert)
        top_tokens = statistics.top_tokens[:TOP_TOKENS] if statistics else []
        found[expert] = RoutedExpertInfo(
            label=labels.get(expert),
            automatic=automatic.get(expert),
            usage=statistics.usage if statistics else None,
            largest=statistics.largest if statistics else None,
            top_tokens=tuple(vocabulary.name(token) for token, _ in top_tokens),
        )
    return found
