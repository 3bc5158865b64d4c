"""Routing of a text, its measured effects, and circuits.

Functions of a ``JobContext`` run on the thread of the language model. They import what they call, because PyTorch takes
seconds to import and browsing does not need it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep
from mxd.backend.api.event_stream import EventStream, stream_progress
from mxd.backend.database.engine import reading
from mxd.backend.inference.service import JobContext, cancel_on_disconnect, progress_steps
from mxd.backend.queries.automatic_labels import both_labels
from mxd.backend.queries.contrasts import read_kinds
from mxd.backend.queries.experts import known, most_promoted
from mxd.backend.queries.runs import find_run, options_of
from mxd.backend.queries.search import passage_result
from mxd.backend.schemas.base import json_response
from mxd.backend.schemas.routing import (
    CircuitCheckedEvent,
    CircuitCheckRequest,
    CircuitDoneEvent,
    CircuitEffectsRequest,
    CircuitExpert,
    CircuitRequest,
    CircuitResponse,
    EffectsRequest,
    EffectsResponse,
    JointRequest,
    PassageRequest,
    PassageResult,
    PromptText,
    RoutedExpertInfo,
    RoutingResponse,
    RunOptions,
)
from mxd.trainer.analysis.circuits.graph import Circuit, CircuitCheck, ExpertAtToken, GroupEffect
from mxd.trainer.analysis.results import ExpertEffect
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
    with services.reading(run) as (session, record):
        options = options_of(session, services.runs, record)
        if not kinds:
            return options
        return options.model_copy(update={"kinds": read_kinds(session, record, services.settings.data)})


@router.post("/runs/{run}/routing", response_model=RoutingResponse)
async def route(run: RunName, request: JointRequest, services: ServicesDep, http: Request) -> Response:
    """Active experts on each token of a text, of one run or of several layers in one forward pass.

    Cancelled when the client closes the connection before its turn.
    """
    runs = [run, *request.others]
    routed, max_tokens = await computed_on(services, runs, request, http, route_text, request.k)

    def described(routing: Routing) -> dict[str, Any]:
        shown = {expert.expert for token in routing.tokens for expert in token.experts}
        experts = expert_infos(services, routing.run, shown)
        return {"run": routing.run, "tokens": routing.tokens, "experts": experts, "max_tokens": max_tokens}

    first, *others = [await asyncio.to_thread(described, routing) for routing in routed]
    return json_response({**first, "others": others})


def route_text(context: JobContext, text: str, k: int | None = None) -> tuple[tuple[Routing, ...], int]:
    """Route a text through runs of different layers. Returns also the longest prompt, in tokens, that both the language
    model and the server accept."""
    from mxd.trainer.inference.routing import route_together

    routed = route_together(context.language_model, context.runs, context.token_ids(text), k)
    return routed, min(context.language_model.max_tokens, context.prompt_tokens)


@router.post("/runs/{run}/routing/predictions", response_model=Predictions)
async def predictions(run: RunName, request: JointRequest, services: ServicesDep, http: Request) -> Response:
    """Next-token distributions at each token of a text, with the original MLP and with the layer in its place."""

    def predicted(context: JobContext, text: str) -> Predictions:
        from mxd.trainer.inference.routing import predict

        first, *others = context.runs
        return predict(context.language_model, first, context.token_ids(text), request.k, others)

    return json_response(await computed_on(services, [run, *request.others], request, http, predicted))


async def computed_on(
    services: Services, runs: Sequence[str], request: PromptText, http: Request, job: Any, *args: Any
) -> Any:
    """Run a job on a prompt, once every run is known."""
    await asyncio.to_thread(find_runs, services, runs)
    # Waiting for the language model must not occupy the threads that browsing needs.
    text = await services.chats.text(runs[0], request.text, request.turns)
    return await cancel_on_disconnect(http, services.inference.submit(runs, job, text, *args))


@router.post("/runs/{run}/routing/effects")
async def effects(run: RunName, request: EffectsRequest, services: ServicesDep, http: Request) -> EffectsResponse:
    """Direct effect of each active expert on a token on the next-token prediction."""

    def measured(context: JobContext, text: str) -> tuple[ExpertEffect, ...]:
        from mxd.trainer.analysis.effects import direct_effects

        ids = context.token_ids(text)
        return direct_effects(context.language_model, context.runs[0], ids, request.position, request.k)

    experts = await computed_on(services, [run], request, http, measured)
    return EffectsResponse(run=run, position=request.position, experts=experts)


@router.post("/runs/{run}/search/passage", response_model=PassageResult)
async def search_passage(run: RunName, request: PassageRequest, services: ServicesDep, http: Request) -> Response:
    """Experts that fire on a passage, or on one of its tokens."""
    (routing,), _ = await computed_on(services, [run], request, http, route_text)
    vocabulary = await asyncio.to_thread(lambda: services.runs.run(run).vocabulary)
    return json_response(await services.read(run, passage_result, routing, request, vocabulary))


def find_runs(services: Services, names: Sequence[str]) -> None:
    """Check that the database has these runs. Raises RunNotFoundError if it lacks one."""
    with reading(services.database) as session:
        for name in names:
            find_run(session, name)


def expert_infos(services: Services, run: str, experts: set[int]) -> dict[int, RoutedExpertInfo]:
    """Return labels and, if there is an index, densities and top tokens of experts."""
    vocabulary = services.runs.run(run).vocabulary
    with services.reading(run) as (session, record):
        labels, records = both_labels(session, record, experts), known(session, record, experts)
    result = {}
    for expert in sorted(experts):
        statistics = records.get(expert)
        top_tokens = statistics.top_tokens[:TOP_TOKENS] if statistics else []
        result[expert] = RoutedExpertInfo(
            **labels[expert],
            density=statistics.density if statistics else None,
            max_activation=statistics.max_activation if statistics else None,
            top_tokens=tuple(vocabulary.name(token) for token, _ in top_tokens),
        )
    return result


@router.post("/circuits", response_model=CircuitResponse)
async def trace_circuit(request: CircuitRequest, services: ServicesDep, http: Request) -> Response:
    """Experts of a prompt with the largest predicted effects on a target, and their effects on one another.

    A client that accepts ``text/event-stream`` receives events: ``progress``, then ``done`` with this ``result``, or
    ``error``. Cancelled when the client closes the connection.
    """

    def done(graph: Circuit) -> CircuitDoneEvent:
        found = CircuitResponse(graph=graph, experts=circuit_experts(services, graph))
        return CircuitDoneEvent(result=found)

    def traced(context: JobContext, config: CircuitConfig) -> Circuit:
        from mxd.trainer.analysis.circuits.tracing import trace

        ids = context.token_ids(config.prompt)
        return trace(context.language_model, context.runs, config, context.callbacks, ids)

    return await _circuit_answer(http, services, request, traced, done)


@router.post("/circuits/check", response_model=CircuitCheck)
async def check_circuit(request: CircuitCheckRequest, services: ServicesDep, http: Request) -> Response:
    """Measure every effect that a circuit predicts, what its experts do together, and what remains without all others.

    Events and cancellation as of a trace.
    """

    def done(found: CircuitCheck) -> CircuitCheckedEvent:
        return CircuitCheckedEvent(result=found)

    def checked(context: JobContext, config: CircuitConfig) -> CircuitCheck:
        from mxd.trainer.analysis.circuits.checking import check

        ids = context.token_ids(config.prompt)
        return check(context.language_model, context.runs, config, request.graph, context.callbacks, ids)

    return await _circuit_answer(http, services, request, checked, done)


async def _circuit_answer(
    http: Request,
    services: Services,
    request: CircuitRequest,
    job: Callable[[JobContext, CircuitConfig], Any],
    done: Callable[[Any], CircuitDoneEvent | CircuitCheckedEvent],
) -> Response:
    """Answer with the result of ``done``, or stream the progress and then ``done``, if the client accepts events."""
    config, runs, live = await circuit_config(services, request), request.runs, services.inference
    if EventStream.media_type in http.headers.get("accept", ""):
        steps = progress_steps(live, runs, job, config)
        return await cancel_on_disconnect(http, stream_progress(steps, done))
    found = await cancel_on_disconnect(http, live.submit(runs, job, config))
    return json_response((await asyncio.to_thread(done, found)).result)


@router.post("/circuits/effects", response_model=tuple[GroupEffect, ...])
async def circuit_effects(request: CircuitEffectsRequest, services: ServicesDep, http: Request) -> Response:
    """Measured changes of the target, and of the experts that are read, when each group of experts is ablated."""
    *groups, read, controls = (
        [ExpertAtToken(node.run, node.position, node.expert) for node in group]
        for group in (*request.groups, request.read, request.controls)
    )
    config = await circuit_config(services, request)

    def ablated(context: JobContext) -> tuple[GroupEffect, ...]:
        from mxd.trainer.analysis.circuits.checking import ablate

        ids = context.token_ids(config.prompt)
        return ablate(context.language_model, context.runs, config, groups, read, context.callbacks, ids, controls)

    return json_response(await cancel_on_disconnect(http, services.inference.submit(request.runs, ablated)))


def expert_name(info: RoutedExpertInfo) -> str | None:
    """Name of an expert in a file, which says nothing else of it."""
    from mxd.trainer.analysis.labelling.rules import quoted

    automatic = info.automatic.label if info.automatic is not None and info.automatic.is_clear else None
    return info.label or automatic or (f"fires on {quoted(info.top_tokens[:1])}" if info.top_tokens else None)


async def circuit_config(services: Services, request: CircuitRequest) -> CircuitConfig:
    """Resolve the settings once every run is known."""
    await asyncio.to_thread(find_runs, services, request.runs)
    prompt = await services.chats.text(request.runs[0], request.text, request.turns)
    return CircuitConfig(prompt=prompt, **request.model_dump(include={"target", "position", "errors", "nodes"}))


def circuit_experts(services: Services, graph: Circuit) -> dict[str, dict[int, CircuitExpert]]:
    experts: dict[str, set[int]] = {run: set() for run in graph.runs}
    for at in graph.experts:
        experts[at.run].add(at.expert)
    result = {}
    for run, shown in experts.items():
        with services.reading(run) as (session, record):
            promoted = most_promoted(session, record, shown, services.runs.run(run).vocabulary)
        result[run] = {
            expert: CircuitExpert(**dict(info), promoted=promoted.get(expert))
            for expert, info in expert_infos(services, run, shown).items()
        }
    return result
