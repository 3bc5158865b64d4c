"""Routing of a text, its measured effects, and circuits."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.database import annotations as notes
from mxd.backend.database.engine import reading
from mxd.backend.inference import jobs
from mxd.backend.queries.ablation import most_promoted
from mxd.backend.queries.automatic_labels import shown_labels
from mxd.backend.queries.contrasts import read_kinds
from mxd.backend.queries.experts import known
from mxd.backend.queries.runs import find_run
from mxd.backend.queries.search import passage_result
from mxd.backend.queries.steering_units import options_of
from mxd.backend.responses import json_response, model_response
from mxd.backend.schemas.routing import (
    CircuitCheckRequest,
    CircuitEffectsRequest,
    CircuitExpert,
    CircuitRequest,
    CircuitResponse,
    EffectsRequest,
    EffectsResponse,
    JointRequest,
    PassageRequest,
    PassageResult,
    RoutedExpertInfo,
    RoutingResponse,
    RunOptions,
)
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck, ExpertAtToken, GroupEffect
from mxd.trainer.config.analysis import CircuitConfig
from mxd.trainer.inference.results import Predictions, Routing

router = APIRouter(tags=["routing"])

TOP_TOKENS = 3


@router.get("/runs/{run}/options")
def run_options(
    run: RunName,
    services: ServicesDep,
    kinds: Annotated[bool, Query(description="Also read the run's text for the kinds of its documents.")] = False,
) -> RunOptions:
    """Runs that can be combined with this one, whether chat turns are supported, and kinds of documents.

    The kinds are those of the run's indexed text, for a contrast of two of them.
    """
    with reading(services.database) as session:
        options = options_of(session, services.runs, run)
        if not kinds:
            return options
        found = read_kinds(session, find_run(session, run), services.settings.data)
        return options.model_copy(update={"kinds": found})


@router.post("/runs/{run}/routing", response_model=RoutingResponse)
async def route(run: RunName, request: JointRequest, services: ServicesDep, http: Request) -> Response:
    """Active experts on each token of a text, of one run or of several layers in one forward pass.

    Cancelled when the client closes the connection before its turn.
    """
    routed, max_tokens = await _computed(services, run, request, http, jobs.route_with_limit)

    def described(routing: Routing) -> dict[str, Any]:
        shown = {expert.expert for token in routing.tokens for expert in token.experts}
        experts = expert_infos(services, routing.run, shown)
        return {"run": routing.run, "tokens": routing.tokens, "experts": experts, "max_tokens": max_tokens}

    first, *others = [await asyncio.to_thread(described, routing) for routing in routed]
    return json_response({**first, "others": others})


@router.post("/runs/{run}/routing/predictions", response_model=Predictions)
async def predictions(run: RunName, request: JointRequest, services: ServicesDep, http: Request) -> Response:
    """Next-token distributions at each token of a text, with the original MLP and with the layer in its place."""
    return json_response(await _computed(services, run, request, http, jobs.predict))


async def _computed(services: Services, run: str, request: JointRequest, http: Request, job: Any) -> Any:
    """Run a job on the prompt with all runs of the request."""
    runs = [run, *request.others]
    await asyncio.to_thread(find_runs, services, runs)
    # Waiting for the language model must not occupy the threads that browsing needs.
    text = await prompt_text(services, run, request.text, request.turns)
    return await cancel_on_disconnect(http, services.inference.submit(runs, job, text, request.k))


@router.post("/runs/{run}/routing/effects")
async def effects(run: RunName, request: EffectsRequest, services: ServicesDep, http: Request) -> EffectsResponse:
    """Direct effect of each active expert on a token on the next-token prediction."""
    await asyncio.to_thread(find_runs, services, [run])
    text = await prompt_text(services, run, request.text, request.turns)
    job = services.inference.submit([run], jobs.direct_effects, text, request.position, request.k)
    experts = await cancel_on_disconnect(http, job)
    return EffectsResponse(run=run, position=request.position, experts=experts)


@router.post("/runs/{run}/search/passage", response_model=PassageResult)
async def search_passage(run: RunName, request: PassageRequest, services: ServicesDep, http: Request) -> Response:
    """Experts that fire on a passage, or on one of its tokens."""
    await asyncio.to_thread(find_runs, services, [run])
    text = await prompt_text(services, run, request.text, request.turns)
    (routing,) = await cancel_on_disconnect(http, services.inference.submit([run], jobs.route, text))

    def ranked() -> Response:
        vocabulary = services.runs.run(run).vocabulary
        with reading(services.database) as session:
            return model_response(passage_result(session, find_run(session, run), routing, request, vocabulary))

    return await asyncio.to_thread(ranked)


def find_runs(services: Services, names: Sequence[str]) -> None:
    """Check that the database has these runs. Raises RunNotFoundError if it lacks one."""
    with reading(services.database) as session:
        for name in names:
            find_run(session, name)


def expert_infos(services: Services, run: str, experts: set[int]) -> dict[int, RoutedExpertInfo]:
    """Return labels and, if there is an index, densities and top tokens of experts."""
    vocabulary = services.runs.run(run).vocabulary
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


@router.post("/circuits", response_model=CircuitResponse)
async def trace_circuit(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """Experts of a prompt with the largest predicted effects on a target, and their effects on one another.

    Cancelled when the client closes the connection.
    """
    config = await circuit_config(services, request)
    traced = await cancel_on_disconnect(http, services.inference.submit(request.runs, jobs.trace, config))
    experts = await asyncio.to_thread(circuit_experts, services, traced)
    return model_response(CircuitResponse(graph=traced, experts=experts))


@router.post("/circuits/check", response_model=CircuitCheck)
async def check_circuit(request: CircuitCheckRequest, services: ServicesDep, http: Request) -> Response:
    """Measure every effect that a circuit predicts, what its experts do together, and what remains without all others.

    Cancelled when the client closes the connection.
    """
    config = await circuit_config(services, request)
    job = services.inference.submit(request.runs, jobs.check_circuit, config, request.graph)
    return json_response(await cancel_on_disconnect(http, job))


@router.post("/circuits/effects", response_model=tuple[GroupEffect, ...])
async def circuit_effects(request: CircuitEffectsRequest, services: ServicesDep, http: Request) -> Response:
    """Measured changes of the target, and of the experts that are read, when each group of experts is ablated."""
    config = await circuit_config(services, request)
    groups = [[ExpertAtToken(node.run, node.position, node.expert) for node in group] for group in request.groups]
    read = [ExpertAtToken(node.run, node.position, node.expert) for node in request.read]
    job = services.inference.submit(request.runs, jobs.ablate, config, groups, read)
    return json_response(await cancel_on_disconnect(http, job))


def expert_name(info: RoutedExpertInfo) -> str | None:
    """Name of an expert in a file, which says nothing else of it."""
    from mxd.trainer.analysis.labelling.rules import quoted

    automatic = info.automatic.label if info.automatic is not None and info.automatic.is_clear else None
    return info.label or automatic or (f"fires on {quoted(info.top_tokens[:1])}" if info.top_tokens else None)


async def circuit_config(services: Services, request: CircuitRequest) -> CircuitConfig:
    """Resolve the settings once every run is known."""
    await asyncio.to_thread(find_runs, services, request.runs)
    prompt = await prompt_text(services, request.runs[0], request.text, request.turns)
    names = ("target", "position", "errors", "nodes")
    return CircuitConfig(prompt=prompt, **{name: getattr(request, name) for name in names})


def circuit_experts(services: Services, graph: Circuit) -> dict[str, dict[int, CircuitExpert]]:
    """Describe the experts of a graph, by run and expert."""
    experts: dict[str, set[int]] = {run: set() for run in graph.runs}
    for at in graph.experts:
        experts[at.run].add(at.expert)
    result = {}
    for run, shown in experts.items():
        with reading(services.database) as session:
            vocabulary = services.runs.run(run).vocabulary
            promoted = most_promoted(session, find_run(session, run), shown, vocabulary)
        result[run] = {
            expert: CircuitExpert(**dict(info), promoted=promoted.get(expert))
            for expert, info in expert_infos(services, run, shown).items()
        }
    return result
