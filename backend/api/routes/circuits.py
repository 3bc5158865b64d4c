"""Circuits of prompts, and the effects of ablating their experts."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.api.routes.routing import expert_infos
from mxd.backend.database.engine import reading
from mxd.backend.export.attribution_graph import GraphContext, attribution_graph
from mxd.backend.inference import jobs
from mxd.backend.queries.ablation import most_promoted
from mxd.backend.queries.runs import find_run
from mxd.backend.responses import json_response, model_response
from mxd.backend.schemas.routing import (
    CircuitCheckRequest,
    CircuitCheckResponse,
    CircuitEffectsRequest,
    CircuitEffectsResponse,
    CircuitExpert,
    CircuitFileRequest,
    CircuitRequest,
    CircuitResponse,
)
from mxd.trainer.analysis.circuits.graph import Circuit, ExpertAtToken
from mxd.trainer.config.analysis import CircuitConfig

router = APIRouter(prefix="/circuits", tags=["circuits"])


@router.post("", response_model=CircuitResponse)
async def trace_circuit(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """Experts of a prompt with the largest predicted effects on a target, and their effects on one another.

    Cancelled when the client closes the connection.
    """
    config = await _config(services, request)
    traced = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.trace, config))
    experts = await asyncio.to_thread(_experts, services, traced.value)
    return model_response(CircuitResponse(graph=traced.value, experts=experts, took_ms=traced.took_ms))


@router.post("/check", response_model=CircuitCheckResponse)
async def check_circuit(request: CircuitCheckRequest, services: ServicesDep, http: Request) -> Response:
    """Measure every effect that a circuit predicts, what its experts do together, and what remains without all others.

    Cancelled when the client closes the connection.
    """
    config = await _config(services, request)
    job = services.live.submit(request.runs, jobs.check_circuit, config, request.graph)
    checked = await cancel_on_disconnect(http, job)
    return model_response(CircuitCheckResponse(check=checked.value, took_ms=checked.took_ms))


@router.post("/effects", response_model=CircuitEffectsResponse)
async def circuit_effects(request: CircuitEffectsRequest, services: ServicesDep, http: Request) -> Response:
    """Measured change of the target when groups of experts are ablated."""
    config = await _config(services, request)
    groups = [[ExpertAtToken(node.run, node.position, node.expert) for node in group] for group in request.groups]
    ablated = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.ablate, config, groups))
    return model_response(CircuitEffectsResponse(measured=ablated.value, took_ms=ablated.took_ms))


@router.post("/graph", response_model=dict[str, Any])
async def circuit_graph(request: CircuitFileRequest, services: ServicesDep) -> Response:
    """A circuit in the attribution graph format of Neuronpedia and circuit-tracer, to be saved as a file."""
    return json_response(await asyncio.to_thread(_file, services, request))


async def _config(services: Services, request: CircuitRequest) -> CircuitConfig:
    """Resolve the settings once every run is known."""
    await asyncio.to_thread(_find_runs, services, request.runs)
    prompt = await prompt_text(services, request.runs[0], request.text, request.turns)
    names = ("target", "position", "errors", "nodes")
    return CircuitConfig(prompt=prompt, **{name: getattr(request, name) for name in names})


def _find_runs(services: Services, names: tuple[str, ...]) -> None:
    with reading(services.database) as session:
        for name in names:
            find_run(session, name)


def _experts(services: Services, graph: Circuit) -> dict[str, dict[int, CircuitExpert]]:
    """Describe the experts of a graph, by run and expert."""
    experts: dict[str, set[int]] = {run: set() for run in graph.runs}
    for at in graph.experts:
        experts[at.run].add(at.expert)
    result = {}
    for run, shown in experts.items():
        with reading(services.database) as session:
            vocabulary = services.library.run(run).vocabulary
            promoted = most_promoted(session, find_run(session, run), shown, vocabulary)
        result[run] = {
            expert: CircuitExpert(**dict(info), promoted=promoted.get(expert))
            for expert, info in expert_infos(services, run, shown).items()
        }
    return result


def _file(services: Services, request: CircuitFileRequest) -> dict[str, Any]:
    _find_runs(services, request.graph.runs)
    labels = {
        run: {expert: label for expert, info in infos.items() if (label := _label(info)) is not None}
        for run, infos in _experts(services, request.graph).items()
    }
    return attribution_graph(request.graph, GraphContext(labels, request.check))


def _label(info: CircuitExpert) -> str | None:
    """Name for programs that know nothing else of the expert."""
    from mxd.trainer.analysis.labelling.rules import quoted

    automatic = info.automatic.label if info.automatic is not None and info.automatic.is_clear else None
    return info.label or automatic or (f"fires on {quoted(info.top_tokens[:1])}" if info.top_tokens else None)
