"""Circuits of a prompt, and what comes of switching their experts off."""

from __future__ import annotations

import asyncio
from math import isfinite

from fastapi import APIRouter, Request
from starlette.responses import Response

from backend.answers import written
from backend.database import reading
from backend.leaving import while_connected
from backend.live import SwitchedOff, Traced
from backend.queries.runs import find_run
from backend.routes.routing import expert_infos
from backend.schemas import (
    CircuitAgreement,
    CircuitEffect,
    CircuitEffectsRequest,
    CircuitEffectsResponse,
    CircuitGraph,
    CircuitRequest,
    CircuitResponse,
)
from backend.schemas.circuits import CircuitTarget
from backend.services import Services, ServicesDep, prompt_text
from trainer.circuits.config import CircuitConfig, TargetConfig
from trainer.circuits.graph import Switch

router = APIRouter(prefix="/circuits", tags=["circuits"])


@router.post("", response_model=CircuitResponse)
async def trace_circuit(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """From which tokens and experts a next token comes: attribution from expert to expert, pruned.

    Given up when the client closes the connection.
    """
    asked = await asyncio.to_thread(_asked, services, request)
    config = CircuitConfig(**asked, nodes=request.nodes, share=request.share)
    traced = await while_connected(http, services.live.trace(request.runs, config))
    return written(await asyncio.to_thread(_answer, services, traced))


@router.post("/effects", response_model=CircuitEffectsResponse)
async def circuit_effects(request: CircuitEffectsRequest, services: ServicesDep, http: Request) -> Response:
    """What switching groups of experts off does to the target, as the graph predicts it and in the language model."""
    asked = await asyncio.to_thread(_asked, services, request)
    groups = [[Switch(it.run, it.position, it.expert) for it in group] for group in request.groups]
    found = await while_connected(http, services.live.switch_off(request.runs, TargetConfig(**asked), groups))
    return written(_effects(found))


def _asked(services: Services, request: CircuitTarget) -> dict[str, object]:
    """The settings of the trainer's target, once every run is known."""
    with reading(services.store) as session:
        for run in request.runs:
            find_run(session, run)
    prompt = prompt_text(services, request.runs[0], request.text, request.turns)
    return {"prompt": prompt, "target": request.target, "position": request.position, "errors": request.errors}


def _answer(services: Services, traced: Traced) -> CircuitResponse:
    graph = CircuitGraph.model_validate(traced.circuit, from_attributes=True)
    active = {run: {node.expert for node in graph.nodes if node.run == run} for run in graph.runs}
    experts = {
        run: expert_infos(services, run, {expert for expert in found if expert is not None})
        for run, found in active.items()
    }
    return CircuitResponse(graph=graph, experts=experts, took_ms=traced.took_ms)


def _effects(found: SwitchedOff) -> CircuitEffectsResponse:
    known = {
        name: value if isfinite(value := getattr(found.agreement, name)) else None
        for name in CircuitAgreement.model_fields
    }
    return CircuitEffectsResponse(
        effects=tuple(CircuitEffect.model_validate(effect, from_attributes=True) for effect in found.effects),
        agreement=CircuitAgreement(**known),
        took_ms=found.took_ms,
    )
