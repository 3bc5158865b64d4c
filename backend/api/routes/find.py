"""Search by effect: experts that make wanted text more probable, their measured effects, and a combination."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.responses import Response

from mxd.backend.api.dependencies import Services, ServicesDep, prompt_text
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.api.routes.routing import expert_infos
from mxd.backend.database.engine import reading
from mxd.backend.inference import jobs
from mxd.backend.queries.runs import find_run
from mxd.backend.responses import model_response
from mxd.backend.schemas.routing import RoutedExpertInfo
from mxd.backend.schemas.steering import (
    CombinationResponse,
    EffectsOfEditsRequest,
    EffectsOfEditsResponse,
    FindRequest,
    FindResponse,
)
from mxd.trainer.config import Edit
from mxd.trainer.config.analysis import FindConfig

router = APIRouter(prefix="/find", tags=["steering"])


@router.post("", response_model=FindResponse)
async def find(request: FindRequest, services: ServicesDep, http: Request) -> Response:
    """Experts of all runs that make wanted text more probable, predicted by one backward pass and measured."""
    config = await _config(services, request)
    done = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.find, config))
    edits = [expert.edit for expert in done.value.experts]
    experts = await asyncio.to_thread(_described, services, edits)
    return model_response(FindResponse(found=done.value, experts=experts, took_ms=done.took_ms))


@router.post("/effects", response_model=EffectsOfEditsResponse)
async def effects_of_edits(request: EffectsOfEditsRequest, services: ServicesDep, http: Request) -> Response:
    """Effect of each group of edits on the wanted text, and its price on unrelated text."""
    config = await _config(services, request)
    job = services.live.submit(request.runs, jobs.measure, config, request.groups)
    done = await cancel_on_disconnect(http, job)
    return model_response(EffectsOfEditsResponse(effects=done.value, took_ms=done.took_ms))


@router.post("/combination", response_model=CombinationResponse)
async def combination(request: FindRequest, services: ServicesDep, http: Request) -> Response:
    """Up to five experts of all runs that together reach the requested probability at the lowest price."""
    config = await _config(services, request)
    done = await cancel_on_disconnect(http, services.live.submit(request.runs, jobs.combine, config))
    experts = await asyncio.to_thread(_described, services, done.value.edits)
    return model_response(CombinationResponse(combination=done.value, experts=experts, took_ms=done.took_ms))


async def _config(services: Services, request: FindRequest) -> FindConfig:
    """Return the trainer's configuration, with chat turns as text, once every run is known."""
    await asyncio.to_thread(_check, services, request.runs)
    prompts = request.prompts
    if request.turns:
        prompts = (await prompt_text(services, request.runs[0], "", request.turns),)
    settings = {name: getattr(request, name) for name in FindConfig.model_fields}
    return FindConfig.from_keywords({**settings, "prompts": prompts}, {})


def _check(services: Services, runs: Sequence[str]) -> None:
    with reading(services.database) as session:
        for run in runs:
            find_run(session, run)


def _described(services: Services, edits: Sequence[Edit]) -> dict[str, dict[int, RoutedExpertInfo]]:
    experts: defaultdict[str, set[int]] = defaultdict(set)
    for edit in edits:
        assert edit.run is not None
        experts[edit.run].add(edit.expert)
    return {run: expert_infos(services, run, ids) for run, ids in experts.items()}
