"""Steered generation, strength sweeps, search by effect, and saved sessions."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import aclosing
from math import isclose
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Path, Request
from pydantic import ValidationError
from sqlalchemy.orm import Session
from starlette.responses import Response

from mxd.backend.api.dependencies import RunName, Services, ServicesDep, WriterDep
from mxd.backend.api.event_stream import EventStream, stream_progress, stream_steps, streams
from mxd.backend.api.routes.routing import expert_infos, find_runs
from mxd.backend.database import annotations
from mxd.backend.database.annotations import SessionRecord
from mxd.backend.database.engine import reading
from mxd.backend.errors import RunNotFoundError
from mxd.backend.inference.run_loader import RunLoader
from mxd.backend.inference.service import JobContext, cancel_on_disconnect, in_steps
from mxd.backend.queries.examples import texts_before
from mxd.backend.queries.experts import naming
from mxd.backend.queries.runs import aware, units_of
from mxd.backend.schemas.base import json_response
from mxd.backend.schemas.steering import (
    EffectsOfEditsRequest,
    FindRequest,
    FindResponse,
    HomeShowcase,
    PriceDoneEvent,
    PriceEvent,
    PriceRequest,
    ProgressEvent,
    SavedSession,
    SaveSessionRequest,
    SessionList,
    SessionSummary,
    Showcase,
    ShowcaseFile,
    SteeringEvent,
    SteeringRequest,
    StrengthSweepEvent,
    StrengthSweepRequest,
)
from mxd.trainer.analysis.results import SEARCH_COLUMNS, EditEffects, EditPrice, FoundExperts
from mxd.trainer.config.analysis import FindConfig
from mxd.trainer.config.steering import SteeringConfig, StrengthSweepConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.inference.results import StrengthSweepProgressEvent
from mxd.trainer.inference.units import Units, all_units, with_control, with_medians
from mxd.trainer.storage.database.open import writing
from mxd.trainer.utils.callbacks import Steps

router = APIRouter(tags=["steering"])

Config = TypeVar("Config", bound=SteeringConfig)


@router.post("/runs/{run}/steering", **streams(SteeringEvent))
async def steer(run: RunName, request: SteeringRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``start``, ``token`` for each new token of either variant, then ``done`` or ``error``."""
    config, units = await prepared(services, run, request, SteeringConfig)
    return await stream_steps(services.inference.generate(list(units), config, units))


@router.post("/runs/{run}/steering/sweep", **streams(StrengthSweepEvent))
async def sweep_strengths(run: RunName, request: StrengthSweepRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` while one edit is tried at several strengths in one batch, then ``done``.

    A control expert of similar density is tried at the same strengths.
    """
    config, units = await prepared(services, run, request, StrengthSweepConfig)

    async def steps() -> AsyncGenerator[Sequence[Any], None]:
        async with aclosing(services.inference.generate(list(units), config, units)) as generated:
            async for together in generated:
                yield [
                    # A waiting sweep has made no progress yet.
                    StrengthSweepProgressEvent(0, 0, step.queue_position) if isinstance(step, ProgressEvent) else step
                    for step in together
                ]

    return await stream_steps(steps())


ITEMS_PER_TURN = 4
"""Texts and items of a price that are read at once: few, so that other requests wait only briefly."""


@router.post("/runs/{run}/steering/price", **streams(PriceEvent))
async def price(run: RunName, request: PriceRequest, services: ServicesDep) -> EventStream:
    """Server-sent events: ``progress`` after each step, then ``done`` with the price of the edits, or ``error``.

    Measured on unrelated text and on an ability test, beside the same edits of random experts. Closing the connection
    cancels. Nothing is stored.
    """
    runs = list(dict.fromkeys([run, *(edit.run for edit in request.edits if edit.run)]))
    await asyncio.to_thread(find_runs, services, runs)
    units = await asyncio.to_thread(_every_unit, services, runs)

    def priced(context: JobContext) -> Steps[EditPrice]:
        from mxd.trainer.analysis.edit_price import price_in_steps

        return price_in_steps(context.language_model, context.runs, request.edits, units)

    steps = in_steps(services.inference, runs, ITEMS_PER_TURN, priced)
    return await stream_progress(steps, lambda found: PriceDoneEvent(price=found))


def _every_unit(services: Services, runs: Sequence[str]) -> Units:
    with reading(services.database) as session:
        return all_units([services.runs.run(name).run for name in runs], session)


async def prepared(
    services: Services, run: str, request: SteeringRequest | StrengthSweepRequest, kind: type[Config]
) -> tuple[Config, dict[str, dict[int, float]]]:
    """Return the trainer's configuration, with chat turns as text, and the units of its experts, by run. A sweep has
    its control expert, and conditions have the medians of their experts."""

    def resolved() -> tuple[SteeringRequest | StrengthSweepRequest, dict[str, dict[int, float]]]:
        with reading(services.database) as session:
            whole = with_control(session, request, run) if isinstance(request, StrengthSweepRequest) else request
            units = units_of(session, services.runs, run, whole)
            return with_medians(session, whole, run), units

    request, units = await asyncio.to_thread(resolved)
    prompt = await services.chats.text(run, request.prompt, request.turns)
    settings = {name: getattr(request, name) for name in kind.model_fields}
    return kind(**{**settings, "prompt": prompt}), units


@router.post("/find", response_model=FindResponse)
async def find(request: FindRequest, services: ServicesDep, http: Request) -> Response:
    """Experts of all runs that make wanted text more probable, predicted by one backward pass and measured."""
    config, units = await _find_config(services, request)

    def searched(context: JobContext) -> FoundExperts:
        from mxd.trainer.analysis.effect_search import find

        _check_lengths(context, config)
        return find(context.language_model, context.runs, config, units, context.callbacks)

    found = await cancel_on_disconnect(http, services.inference.submit(request.runs, searched))
    ids: defaultdict[str, set[int]] = defaultdict(set)
    for edit in (expert.edit for expert in found.experts):
        assert edit.run is not None
        ids[edit.run].add(edit.expert)
    experts = {run: await asyncio.to_thread(expert_infos, services, run, its) for run, its in ids.items()}
    names = {run: await asyncio.to_thread(_naming, services, run, its, config.wanted) for run, its in ids.items()}
    return json_response(FindResponse(found=found, experts=experts, naming=names, columns=SEARCH_COLUMNS))


def _naming(services: Services, run: str, experts: Collection[int], texts: Sequence[str]) -> tuple[int, ...]:
    with services.reading(run) as (session, record):
        return tuple(sorted(naming(session, record, experts, texts, services.runs.run(run).vocabulary)))


@router.post("/find/effects")
async def edit_effects(request: EffectsOfEditsRequest, services: ServicesDep, http: Request) -> EditEffects:
    """Effect of each group of edits on the wanted text, and its price on unrelated text.

    Without ``held_out``, the other texts are stored ones in which a wanted text follows."""
    config, units = await _find_config(services, request)
    if not config.held_out:
        config = config.model_copy(update={"held_out": await asyncio.to_thread(_held_out, services, request)})

    def measured(context: JobContext) -> EditEffects:
        from mxd.trainer.analysis.effect_search import measure

        _check_lengths(context, config)
        return measure(context.language_model, context.runs, config, request.groups, units, context.callbacks)

    return await cancel_on_disconnect(http, services.inference.submit(request.runs, measured))


def _held_out(services: Services, request: FindRequest) -> tuple[str, ...]:
    run = request.runs[0]
    with services.reading(run) as (session, record):
        return texts_before(session, record, request.wanted or request.unwanted, services.runs.run(run).tokenizer)


def _check_lengths(context: JobContext, config: FindConfig) -> None:
    """Raise TooLongError if a prompt with the longest text after it is too long for this server."""
    longest = max((*config.wanted, *config.unwanted), key=len)
    for prompt in config.prompts:
        context.token_ids(prompt + longest)


async def _find_config(services: Services, request: FindRequest) -> tuple[FindConfig, Units]:
    """Return the trainer's configuration, with chat turns as text, and all units, once every run is known."""
    await asyncio.to_thread(find_runs, services, request.runs)
    prompts = request.prompts
    if request.turns:
        prompts = (await services.chats.text(request.runs[0], "", request.turns),)
    settings = {name: getattr(request, name) for name in FindConfig.model_fields}
    config = FindConfig.from_keywords({**settings, "prompts": prompts}, {})
    return config, await asyncio.to_thread(_every_unit, services, request.runs)


SHOWCASE_FILE = "showcase.json"
"""In the data folder. ``scripts/showcase.py`` writes it."""
PROMPT_SHOWN = 200
TEXT_SHOWN = 240
TOKENS_SHOWN = 60
NEAR = 0.005
"""Largest relative difference of units without a visible effect."""

SessionId = Annotated[str, Path(max_length=32, pattern="^[a-z0-9]+$", description="Short id of a saved session.")]


@router.get("/runs/{run}/sessions")
def list_sessions(run: RunName, services: ServicesDep) -> SessionList:
    """Saved sessions of a run, newest first."""
    with services.reading(run) as (session, _):
        read = ((record, _saved(record)) for record in annotations.sessions_of(session, run))
        sessions = tuple(
            SessionSummary(**_fields(record, saved, _changes(session, services.runs, record, saved.steering)))
            for record, saved in read
            if saved
        )
    return SessionList(sessions=sessions)


@router.post("/runs/{run}/sessions", status_code=201)
def save_session(run: RunName, request: SaveSessionRequest, services: ServicesDep, writer: WriterDep) -> SavedSession:
    """Save a session: prompt, edits, sampling and seed reproduce the same texts."""
    with writing(writer) as session:
        saved = request.model_dump(mode="json")
        units = annotations.json_units(units_of(session, services.runs, run, request.steering))
        if request.text is None and request.result is not None:
            text = "".join(token.text for token in request.result.steered[0]).strip()
            saved["text"] = text if len(text) <= TEXT_SHOWN else text[:TEXT_SHOWN].rsplit(" ", 1)[0]
        return _opened(session, services.runs, annotations.save_session(session, run, units=units, **saved))


@router.get("/showcase")
def showcase(services: ServicesDep) -> HomeShowcase:
    """The session of the first page, with its texts at several strengths."""
    try:
        stored = ShowcaseFile.model_validate_json((services.settings.data / SHOWCASE_FILE).read_bytes())
    except FileNotFoundError:
        return HomeShowcase(showcase=None)
    except ValidationError as error:
        raise UserError(f"{SHOWCASE_FILE} in {services.settings.data} is damaged: {error}. Delete it.") from error
    with reading(services.database) as session:
        named = (each for each in annotations.sessions_of(session, stored.run) if each.name == stored.session)
        opened = (_opened(session, services.runs, each) for each in named if _saved(each))
        found = next((each for each in opened if not each.changed), None)
    if found is None:
        return HomeShowcase(showcase=None)
    shown = found.model_copy(update={"steering": found.steering.model_copy(update={"prompt": stored.prompt})})
    kept = {name: getattr(stored, name) for name in ("title", "controls", "texts")}
    return HomeShowcase(showcase=Showcase(session=shown, **kept))


@router.get("/sessions/{id}")
def open_session(id: SessionId, services: ServicesDep) -> SavedSession:
    """A saved session, and whether anything that its texts depend on has changed."""
    with reading(services.database) as session:
        return _opened(session, services.runs, annotations.find_session(session, id))


@router.delete("/sessions/{id}", status_code=204)
def delete_session(id: SessionId, writer: WriterDep) -> None:
    """Delete a saved session."""
    with writing(writer) as session:
        annotations.delete_session(session, id)


def _saved(record: SessionRecord) -> SaveSessionRequest | None:
    """Return what was saved; None for a session of another version or a damaged one, which must not hide others."""
    try:
        return SaveSessionRequest.model_validate(
            {name: getattr(record, name) for name in SaveSessionRequest.model_fields}
        )
    except ValidationError:
        return None


def _fields(record: SessionRecord, saved: SaveSessionRequest, changed: Sequence[str]) -> dict[str, Any]:
    steering = saved.steering
    prompt = steering.turns[-1].text if steering.turns else steering.prompt
    return {name: getattr(record, name) for name in ("id", "name", "run", "text")} | {
        "prompt": prompt[:PROMPT_SHOWN],
        "is_chat": bool(steering.turns),
        "edits": steering.edits,
        "saved_at": aware(record.saved_at),
        "tokens": saved.result.steered[0][:TOKENS_SHOWN] if saved.result else (),
        "price": None if changed or saved.result is None else saved.result.price,
    }


def _opened(session: Session, library: RunLoader, record: SessionRecord) -> SavedSession:
    saved = _saved(record)
    if saved is None:
        raise UserError(f"Session {record.id} is damaged or of another version. Delete it.")
    changed = _changes(session, library, record, saved.steering)
    fields = _fields(record, saved, changed)
    return SavedSession(**fields, steering=saved.steering, result=saved.result, changed=changed)


def _changes(session: Session, library: RunLoader, record: SessionRecord, steering: SteeringRequest) -> tuple[str, ...]:
    try:
        now = annotations.json_units(units_of(session, library, record.run, steering))
    except RunNotFoundError:
        return ("A run of this session is gone from the database, so its texts cannot be written again.",)
    except NotFoundError:
        return ("An expert of this session no longer exists: its run was trained again with fewer experts.",)
    units, stored = (
        {(run, expert): unit for run, its in each.items() for expert, unit in its.items()}
        for each in (now, record.units)
    )
    if units.keys() == stored.keys() and all(isclose(stored[key], units[key], rel_tol=NEAR) for key in stored):
        return ()
    return ("A run was indexed again after this session was saved, so the units of its strengths have changed.",)
