"""Attribution graphs of prompts, and the effects of ablating their experts."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from math import nan
from time import perf_counter
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.api.routes.routing import expert_infos
from mxd.backend.database.engine import reading
from mxd.backend.export.attribution_graph import GraphContext, attribution_graph, node_ids
from mxd.backend.export.read_graph import ForeignGraph, ReadGraph, read_graph
from mxd.backend.inference import jobs
from mxd.backend.inference.jobs import JobResult
from mxd.backend.queries.ablation import most_promoted
from mxd.backend.queries.runs import find_run
from mxd.backend.responses import json_response, model_response
from mxd.backend.schemas import (
    CircuitAttentionRequest,
    CircuitAttentionResponse,
    CircuitEffectsRequest,
    CircuitEffectsResponse,
    CircuitRequest,
    CircuitResponse,
)
from mxd.backend.schemas.circuits import CircuitExpert, CircuitTarget, ReadCircuitResponse, Supernode
from mxd.trainer.analysis.circuits.graph import AblationEffect, Agreement, ExpertAtToken
from mxd.trainer.config.analysis import CircuitConfig, TargetConfig

if TYPE_CHECKING:
    from mxd.trainer.analysis.circuits.edge_results import EdgeAttention
    from mxd.trainer.analysis.circuits.graph import Circuit

router = APIRouter(prefix="/circuits", tags=["circuits"])


@router.post("", response_model=CircuitResponse)
async def trace_circuit(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """Attribution graph of a next token through experts and tokens, pruned.

    Cancelled when the client closes the connection.
    """
    asked = await _asked(services, request)
    config = CircuitConfig(**asked, nodes=request.nodes, share=request.share)
    traced = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.trace, config))
    return model_response(await asyncio.to_thread(_answer, services, traced))


@router.post("/effects", response_model=CircuitEffectsResponse)
async def circuit_effects(request: CircuitEffectsRequest, services: ServicesDep, http: Request) -> Response:
    """Effect of ablating groups of experts on the target: predicted by the graph, and measured."""
    asked = await _asked(services, request)
    groups = [[ExpertAtToken(node.run, node.position, node.expert) for node in group] for group in request.groups]
    job = services.live.submit(request.runs, jobs.ablate, TargetConfig(**asked), groups)
    return model_response(_effects(await cancel_on_disconnect(http, job)))


@router.post("/attention", response_model=CircuitAttentionResponse)
async def circuit_attention(request: CircuitAttentionRequest, services: ServicesDep, http: Request) -> Response:
    """Heads that carried an edge of a circuit, and the experts that made them look where they did."""
    asked = TargetConfig(**await _asked(services, request))
    ends = (request.source.key, request.edge_target.key)
    job = services.live.submit(request.runs, jobs.explain_edge, asked, *ends)
    explained = await cancel_on_disconnect(http, job)
    experts = await asyncio.to_thread(_score_experts, services, explained.value)
    return model_response(
        CircuitAttentionResponse(attention=explained.value, experts=experts, took_ms=explained.took_ms)
    )


@router.post("/graph", response_model=dict[str, Any])
async def circuit_graph(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """Attribution graph of a next token in the format of Neuronpedia and circuit-tracer, to be saved as a file."""
    asked = await _asked(services, request)
    config = CircuitConfig(**asked, nodes=request.nodes, share=request.share)
    traced = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.trace, config))
    return json_response(await asyncio.to_thread(_file, services, traced.value))


@router.post("/read", response_model=ReadCircuitResponse)
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
    return model_response(
        ReadCircuitResponse(
            graph=foreign.circuit,
            ids=foreign.ids,
            experts=experts,
            prompt=graph.metadata.prompt,
            pinned=graph.view.pinned,
            supernodes=tuple(Supernode(name=name, nodes=nodes) for name, *nodes in graph.view.supernodes),
            measured=foreign.measured,
            agreement=_file_agreement(foreign),
            whole=graph.metadata.whole is not None,
            took_ms=1000 * (perf_counter() - start),
        )
    )


def _file_agreement(foreign: ReadGraph) -> Agreement:
    """Compare the effects that a file predicts with those that it measured."""
    from mxd.trainer.analysis.circuits.agreement import agreement

    pairs = zip(foreign.circuit.nodes, foreign.measured, strict=True)
    return agreement(AblationEffect(-node.effect, value, nan) for node, value in pairs if value is not None)


def _foreign_expert(label: str) -> CircuitExpert:
    return CircuitExpert(label=label, automatic=None, density=None, max_activation=None, top_tokens=(), promoted=None)


async def _asked(services: Services, request: CircuitTarget) -> dict[str, object]:
    """Resolve the target's settings once every run is known."""
    await asyncio.to_thread(_check, services, request)
    prompt = await prompt_text(services, request.runs[0], request.text, request.turns)
    return {"prompt": prompt, "target": request.target, "position": request.position, "errors": request.errors}


def _check(services: Services, request: CircuitTarget) -> None:
    with reading(services.database) as session:
        for run in request.runs:
            find_run(session, run)


def _answer(services: Services, traced: JobResult[Circuit]) -> CircuitResponse:
    graph = traced.value
    experts = _experts(services, graph)
    return CircuitResponse(graph=graph, ids=tuple(node_ids(graph)), experts=experts, took_ms=traced.took_ms)


def _experts(services: Services, graph: Circuit) -> dict[str, dict[int, CircuitExpert]]:
    """Describe the experts of a graph, by run and expert."""
    experts: dict[str, set[int]] = {run: set() for run in graph.runs}
    for at in graph.experts:
        experts[at.run].add(at.expert)
    return _described(services, experts)


def _score_experts(services: Services, attention: EdgeAttention) -> dict[str, dict[int, CircuitExpert]]:
    """Describe the experts in the scores of an edge's heads, by run and expert."""
    experts: defaultdict[str, set[int]] = defaultdict(set)
    scores = [head.score for head in attention.heads if head.score is not None]
    for source in (source for score in scores for source in (*score.query_sources, *score.key_sources)):
        if source.run is not None and source.expert is not None:
            experts[source.run].add(source.expert)
    return _described(services, experts)


def _described(services: Services, experts_of: Mapping[str, set[int]]) -> dict[str, dict[int, CircuitExpert]]:
    result = {}
    for run, experts in experts_of.items():
        with reading(services.database) as session:
            vocabulary = services.library.run(run).vocabulary
            promoted = most_promoted(session, find_run(session, run), experts, vocabulary)
        result[run] = {
            expert: CircuitExpert(**dict(info), promoted=promoted.get(expert))
            for expert, info in expert_infos(services, run, experts).items()
        }
    return result


def _file(services: Services, graph: Circuit) -> dict[str, Any]:
    labels = {
        run: {expert: label for expert, info in infos.items() if (label := _label(info)) is not None}
        for run, infos in _experts(services, graph).items()
    }
    return attribution_graph(graph, GraphContext(labels, {}))


def _label(info: CircuitExpert) -> str | None:
    """Name for programs that know nothing else of the expert."""
    from mxd.trainer.analysis.labelling.rule_text import quoted

    automatic = info.automatic.label if info.automatic is not None and info.automatic.is_clear else None
    return info.label or automatic or (f"fires on {quoted(info.top_tokens[:1])}" if info.top_tokens else None)


def _effects(ablated: JobResult[tuple[tuple[AblationEffect, ...], Agreement]]) -> CircuitEffectsResponse:
    effects, agreement = ablated.value
    return CircuitEffectsResponse(effects=effects, agreement=agreement, took_ms=ablated.took_ms)
