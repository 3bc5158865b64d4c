"""Snapshots: what a page shows, as files for people who have no server."""

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep
from mxd.backend.api.routes.routing import (
    circuit_config,
    circuit_experts,
    expert_infos,
    expert_name,
    find_runs,
    route_text,
)
from mxd.backend.database.engine import reading
from mxd.backend.export.attribution_graph import attribution_graph
from mxd.backend.export.snapshots import circuit_command, names_in, origin_of, route_command, steer_command
from mxd.backend.inference.service import cancel_on_disconnect
from mxd.backend.queries.experts import find_expert
from mxd.backend.queries.runs import find_run
from mxd.backend.schemas.base import json_response
from mxd.backend.schemas.steering import (
    CircuitSnapshot,
    ExpertSnapshot,
    GridSnapshot,
    RoutingSnapshot,
    SnapshotFiles,
    SnapshotRequest,
    SteeringSnapshot,
)
from mxd.trainer.config.steering import SteeringConfig
from mxd.trainer.inference.results import steering_facts, steering_snapshot
from mxd.trainer.utils.snapshot import Grid, Origin, Snapshot, Token, activation_shade, change_shade

router = APIRouter(tags=["snapshots"])

EXAMPLES = 12
"""Examples of an expert in a snapshot."""


@router.post("/runs/{run}/snapshot", response_model=SnapshotFiles)
async def snapshot(run: RunName, request: SnapshotRequest, services: ServicesDep, http: Request) -> Response:
    """An expert, a heat map, generated texts or a circuit as a self-contained HTML page and as Markdown.

    A circuit also has the attribution graph format of Neuronpedia and circuit-tracer.
    """
    await asyncio.to_thread(find_runs, services, [run])
    graph = None
    if isinstance(request, ExpertSnapshot):
        made = await asyncio.to_thread(_expert, services, run, request)
    elif isinstance(request, RoutingSnapshot):
        made = await _routing(services, run, request, http)
    elif isinstance(request, GridSnapshot):
        made = await asyncio.to_thread(_grid, services, run, request)
    elif isinstance(request, SteeringSnapshot):
        made = await _steering(services, run, request)
    else:
        made, graph = await _circuit(services, request)
    return json_response(SnapshotFiles(title=made.title, html=made.html(), markdown=made.markdown(), graph=graph))


def _origin(
    services: Services,
    runs: Sequence[str],
    experts: Mapping[str, set[int]],
    command: Sequence[str],
    seeds: Mapping[str, int] | None = None,
) -> Origin:
    with reading(services.database) as session:
        return origin_of(session, [services.runs.run(name).run for name in runs], experts, command, seeds)


def _expert(services: Services, run: str, request: ExpertSnapshot) -> Snapshot:
    from mxd.trainer.analysis.expert import load_expert  # imports PyTorch

    number = request.expert
    with reading(services.database) as session:
        find_expert(session, find_run(session, run), number)
        name = names_in(session, {run: [number]}).get((run, number))
        expert = load_expert(session, services.runs.run(run).run, number, name, EXAMPLES)
    if request.promoted:
        expert = replace(expert, promoted=request.promoted, suppressed=request.suppressed)
    command = ["mxd", "experts", run, str(number), "--examples", str(EXAMPLES)]
    snapshot = expert.snapshot(_origin(services, [run], {}, command))
    return replace(snapshot, facts=[*snapshot.facts, *([("what it writes", request.note)] if request.note else [])])


async def _routing(services: Services, run: str, request: RoutingSnapshot, http: Request) -> Snapshot:
    text = await services.chats.text(run, request.text, request.turns)
    job = services.inference.submit([run], route_text, text, request.k)
    (routing,), _ = await cancel_on_disconnect(http, job)
    experts = {each.expert for token in routing.tokens for each in token.experts}
    origin = await asyncio.to_thread(_origin, services, [run], {}, route_command(run, text, request.k))
    infos = await asyncio.to_thread(expert_infos, services, run, experts)
    names = {(run, expert): name for expert, info in infos.items() if (name := expert_name(info)) is not None}
    return routing.snapshot(replace(origin, labels=names), [expert for expert in request.experts if expert in experts])


def _grid(services: Services, run: str, request: GridSnapshot) -> Snapshot:
    """Build the snapshot of a grid. The page has chosen its rows and computed its cells."""
    runs = list(dict.fromkeys([run, *(row.run for row in request.rows)]))
    find_runs(services, runs)
    names: dict[tuple[str, int], str] = {}
    for name in runs:
        experts = {cell.expert for row in request.rows if row.run == name for cell in row.cells}
        names |= {
            (name, expert): expert_name(info) or "" for expert, info in expert_infos(services, name, experts).items()
        }
    differs = request.kind == "difference"
    texts = [request.text, request.second] if differs else [request.text]
    commands = [shlex.join(route_command(name, text, request.k)) for name in runs for text in texts]
    origin = replace(_origin(services, runs, {}, []), command="\n".join(commands), labels=names)
    largest = max(abs(cell.value) for row in request.rows for cell in row.cells)
    rows = []
    for row in request.rows:
        end = (largest if differs else max(cell.value for cell in row.cells)) or 1.0
        boxes = {}
        for cell in row.cells:
            tip = f"Expert {origin.named(row.run, cell.expert)}\n{cell.value:.4f}"
            if differs:
                box = Token(f"{cell.value:+.2f}", change_shade(cell.value / end), tip, value=cell.value)
            else:
                named = f"{cell.value:.2f} · {cell.expert} {origin.label(row.run, cell.expert)}".strip()
                box = Token(named, activation_shade(cell.value / end), tip, value=cell.value)
            boxes[cell.column] = (box,)
        expert = row.cells[0].expert
        layer = f"L{services.runs.run(row.run).run.config.layer}"
        rows.append((str(expert), origin.label(row.run, expert), boxes) if differs else (layer, "", boxes))
    return Snapshot(
        " and ".join(f"“{text}”" for text in texts),
        f"{len(rows)} experts of {run} that differ most" if differs else f"{len(rows)} layers",
        [Grid("heat" if differs else "layers", [Token(text) for text in request.columns], rows)],
        note="Cells are gate activations in the second text minus those in the first. Green: stronger in the second."
        if differs
        else "A box is the expert of a layer with the largest share × rarity on a token, and its gate activation.",
        origin=origin,
    )


async def _steering(services: Services, run: str, request: SteeringSnapshot) -> Snapshot:
    config = request.request
    prompt = await services.chats.text(run, config.prompt, config.turns)
    own = {name: getattr(config, name) for name in SteeringConfig.model_fields}
    settings = SteeringConfig.model_validate({**own, "prompt": prompt})
    command = steer_command(run, settings)
    edited = [(edit.run or run, edit.expert) for edit in (*config.edits, *request.control_edits)]
    experts = {name: {expert for other, expert in edited if other == name} for name, _ in edited}
    runs = list(dict.fromkeys([run, *experts]))
    await asyncio.to_thread(find_runs, services, runs)
    origin = await asyncio.to_thread(_origin, services, runs, experts, command, {"sampling": config.sampling.seed})
    texts = [
        [[(token.text, token.delta_log_probability) for token in text] for text in variant]
        for variant in (request.baseline, request.steered, request.control)
        if variant is not None
    ]
    # The findings have it with its interval.
    kl = [] if request.kl_nats is None or request.findings else [("KL", f"{request.kl_nats:.2f} nats per token")]
    facts = [*kl, *steering_facts(settings)]
    # A chat is shown without the special tokens of its template, which only the command needs.
    histories = (request.original_turns or config.turns, config.turns, config.turns)
    prompts = []
    for turns in histories:
        shown = [f"{turn.role}: {turn.text}" for turn in turns]
        answer = ["assistant: "] if turns and turns[-1].role != "assistant" else []
        prompts.append("\n\n".join([*shown, *answer]) or prompt)
    return steering_snapshot(run, prompts, config.edits, texts, origin, facts, request.control_edits, request.findings)


async def _circuit(services: Services, request: CircuitSnapshot) -> tuple[Snapshot, dict[str, Any]]:
    config = await circuit_config(services, request.request)
    runs = request.graph.runs
    await asyncio.to_thread(find_runs, services, runs)
    experts = {run: {at.expert for at in request.graph.experts if at.run == run} for run in runs}
    origin = await asyncio.to_thread(_origin, services, runs, experts, circuit_command(runs, config))
    infos_of = await asyncio.to_thread(circuit_experts, services, request.graph)
    labels = {
        run: {expert: name for expert, info in infos.items() if (name := expert_name(info)) is not None}
        for run, infos in infos_of.items()
    }
    graph = attribution_graph(request.graph, labels, request.check)
    return request.graph.snapshot(request.check, origin), graph
