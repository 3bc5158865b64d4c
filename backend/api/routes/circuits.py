"""Attribution graphs of prompts, and the effects of ablating their experts."""

from __future__ import annotations

import asyncio
from math import isfinite
from time import perf_counter
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.api.routes.routing import expert_infos
from mxd.backend.database.engine import reading
from mxd.backend.export.read_graph import ForeignGraph, read_graph
from mxd.backend.inference import jobs
from mxd.backend.inference.jobs import JobResult
from mxd.backend.queries.runs import find_run
from mxd.backend.responses import model_response
from mxd.backend.schemas import (
    CircuitAgreement,
    CircuitEffect,
    CircuitEffectsRequest,
    CircuitEffectsResponse,
    CircuitRequest,
    CircuitResponse,
    RoutedExpertInfo,
)
from mxd.backend.schemas.circuits import CircuitTarget
from mxd.trainer.analysis.circuits.graph import ExpertAtToken
from mxd.trainer.config.analysis import CircuitConfig, TargetConfig

if TYPE_CHECKING:
    from mxd.trainer.analysis.circuits.ablation import AblationEffect
    from mxd.trainer.analysis.circuits.agreement import Agreement
    from mxd.trainer.analysis.circuits.graph import Circuit

router = APIRouter(prefix="/circuits", tags=["circuits"])


@router.post("", response_model=CircuitResponse)
async def trace_circuit(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """Attribution graph of a next token through experts and tokens, pruned.

    Cancelled when the client closes the connection.
    """
    asked = await asyncio.to_thread(_asked, services, request)
    config = CircuitConfig(**asked, nodes=request.nodes, share=request.share)
    traced = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.trace, config))
    return model_response(await asyncio.to_thread(_answer, services, traced))


@router.post("/effects", response_model=CircuitEffectsResponse)
async def circuit_effects(request: CircuitEffectsRequest, services: ServicesDep, http: Request) -> Response:
    """Effect of ablating groups of experts on the target: predicted by the graph, and measured."""
    asked = await asyncio.to_thread(_asked, services, request)
    groups = [[ExpertAtToken(node.run, node.position, node.expert) for node in group] for group in request.groups]
    job = services.live.submit(request.runs, jobs.ablate, TargetConfig(**asked), groups)
    return model_response(_effects(await cancel_on_disconnect(http, job)))


@router.post("/read", response_model=CircuitResponse)
async def read_foreign_graph(graph: ForeignGraph) -> Response:
    """Attribution graph of another program, in the format of Neuronpedia and circuit-tracer. Nothing is stored.

    The runs of the answer are names from the file, so they need not exist here.
    """
    start = perf_counter()
    foreign = await asyncio.to_thread(read_graph, graph)
    experts = {
        run: {expert: _foreign_expert(label) for expert, label in labels.items()}
        for run, labels in foreign.labels.items()
    }
    took_ms = 1000 * (perf_counter() - start)
    return model_response(CircuitResponse(graph=foreign.circuit, experts=experts, took_ms=took_ms))


def _foreign_expert(label: str) -> RoutedExpertInfo:
    return RoutedExpertInfo(label=label, automatic=None, density=None, max_activation=None, top_tokens=())


def _asked(services: Services, request: CircuitTarget) -> dict[str, object]:
    """Resolve the target's settings once every run is known."""
    with reading(services.database) as session:
        for run in request.runs:
            find_run(session, run)
    prompt = prompt_text(services, request.runs[0], request.text, request.turns)
    return {"prompt": prompt, "target": request.target, "position": request.position, "errors": request.errors}


def _answer(services: Services, traced: JobResult[Circuit]) -> CircuitResponse:
    graph = traced.value
    active = {run: {node.expert for node in graph.nodes if node.run == run} for run in graph.runs}
    experts = {
        run: expert_infos(services, run, {expert for expert in active_experts if expert is not None})
        for run, active_experts in active.items()
    }
    return CircuitResponse(graph=graph, experts=experts, took_ms=traced.took_ms)


def _effects(ablated: JobResult[tuple[tuple[AblationEffect, ...], Agreement]]) -> CircuitEffectsResponse:
    effects, agreement = ablated.value
    known = {
        name: value if isfinite(value := getattr(agreement, name)) else None for name in CircuitAgreement.model_fields
    }
    return CircuitEffectsResponse(
        effects=tuple(CircuitEffect.model_validate(effect, from_attributes=True) for effect in effects),
        agreement=CircuitAgreement(**known),
        took_ms=ablated.took_ms,
    )
