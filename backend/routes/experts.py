"""Experts of a run: pages, one in full, its contexts, those like it, and search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response

from backend import lists
from backend.answers import QUICK_LEVEL, Kept, plain, written
from backend.database import reading
from backend.leaving import while_connected
from backend.queries import contexts as context_queries
from backend.queries import experts as queries
from backend.queries import influence as influence_queries
from backend.queries import pages
from backend.queries import random_contexts as random_queries
from backend.queries import search as search_queries
from backend.queries.browsing import BrowsedRun
from backend.queries.contexts import ContextQuery
from backend.queries.detail import expert_detail
from backend.queries.experts import ExpertQuery
from backend.queries.random_contexts import RandomContextQuery
from backend.queries.runs import find_index, find_run
from backend.queries.search_index import SearchText
from backend.queries.together import SHIFTS, named
from backend.schemas import (
    ContextPage,
    ExpertDetail,
    ExpertInfluence,
    ExpertMap,
    ExpertPage,
    RandomContexts,
    RandomExpert,
    SearchHit,
    SearchResult,
    SimilarBy,
    SimilarExperts,
    TogetherExperts,
)
from backend.services import ExpertId, RunName, Services, ServicesDep
from backend.vocabulary import Vocabulary

if TYPE_CHECKING:
    from trainer.language_model import LanguageModel
    from trainer.run import Run

router = APIRouter(prefix="/runs/{run}", tags=["experts"])

Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("/experts", response_model=ExpertPage)
async def experts(
    run: RunName, query: Annotated[ExpertQuery, Query()], request: Request, services: ServicesDep
) -> Response:
    """A page of experts in the order asked for; dead ones are included unless a filter leaves them out."""
    held = _held(services, run)
    # What is in memory is answered without a thread; there is hardly anything to do.
    if held is not None and _is_in_memory(held[0], query):
        return _kept_page(services, *held, query).answer(request.headers)
    return await run_in_threadpool(_read_page, services, run, query, request.headers)


def _held(services: Services, run: str) -> tuple[BrowsedRun, Vocabulary] | None:
    """A run and its vocabulary if they are in memory as they are now."""
    browsed, loaded = services.browsing.at_once(run), services.library.at_once(run)
    return None if browsed is None or loaded is None else (browsed, loaded.vocabulary)


def _is_in_memory(browsed: BrowsedRun, query: ExpertQuery) -> bool:
    return query.list is None and (not query.search or search_queries.is_held(browsed, query.search))


def _kept_page(services: Services, browsed: BrowsedRun, vocabulary: Vocabulary, query: ExpertQuery) -> Kept:
    """A page as it was written when it was first asked for in this state of the store."""
    return browsed.pages.of(
        (vocabulary, query), lambda: Kept.of(_page(services, browsed, vocabulary, query), QUICK_LEVEL)
    )


def _read_page(services: Services, run: str, query: ExpertQuery, headers: Headers) -> Response:
    vocabulary = services.library.run(run).vocabulary if services.browsing.is_held(run) else None
    if vocabulary is None and pages.is_whole(query):
        services.browsing.load_soon(run)
        with reading(services.store) as session:
            record = find_run(session, run)
            find_index(session, record)
            return plain(queries.stored_page(session, record, query, services.library.run(run).vocabulary))
    browsed = services.browsing.of(run)
    vocabulary = vocabulary or services.library.run(run).vocabulary
    if _is_in_memory(browsed, query):  # of a store that could not be asked without waiting
        return _kept_page(services, browsed, vocabulary, query).answer(headers)
    return plain(_page(services, browsed, vocabulary, query))


def _page(services: Services, browsed: BrowsedRun, vocabulary: Vocabulary, query: ExpertQuery) -> dict[str, Any]:
    """A page from memory, but for what a search or a list has to read."""
    chosen: list[NDArray[Any]] = []
    if query.search:
        chosen.append(search_queries.find_experts(services.store, browsed, query.search, vocabulary))
    if query.token is not None:
        chosen.append(browsed.search.users(vocabulary.equal(query.token)))
    if query.tag is not None:
        chosen.append(_ids({expert for expert, tags in browsed.tags.items() if query.tag in tags}))
    if query.list is not None:
        with reading(services.store) as session:
            chosen.append(_ids(lists.experts_in(session, browsed.record.name, query.list)))
    if query.among is not None:
        chosen.append(_ids({int(number) for number in query.among.split(",")}))
    return pages.expert_page(browsed, query, chosen, vocabulary)


def _ids(experts: set[int]) -> NDArray[Any]:
    return np.fromiter(experts, np.int64, len(experts))


@router.get("/experts/random")
async def random_expert(run: RunName, services: ServicesDep) -> RandomExpert:
    """An active expert, each as likely as the others."""
    browsed = services.browsing.at_once(run)
    if browsed is None:
        browsed = await run_in_threadpool(services.browsing.of, run)
    return RandomExpert(expert=queries.random_expert(browsed.record, browsed.columns, services.chance))


@router.get("/experts/{expert}", response_model=ExpertDetail)
def expert(run: RunName, expert: ExpertId, services: ServicesDep) -> Response:
    """One expert with its intervals, its note and its active neighbours."""

    def detail(session: Session, browsed: BrowsedRun) -> ExpertDetail:
        return expert_detail(session, browsed, expert, services.library.run(run).vocabulary)

    return written(services.browsing.read(run, detail))


@router.get("/experts/{expert}/contexts", response_model=ContextPage)
def contexts(
    run: RunName, expert: ExpertId, query: Annotated[ContextQuery, Query()], services: ServicesDep
) -> Response:
    """Stored contexts of an expert: interval by interval, the largest first."""

    def page(session: Session, browsed: BrowsedRun) -> dict[str, Any]:
        browsed.place(expert)
        vocabulary = services.library.run(run).vocabulary
        return context_queries.context_page(session, browsed.record, expert, query, vocabulary)

    return plain(services.browsing.read(run, page))


@router.get("/experts/{expert}/contexts/random", response_model=RandomContexts)
def random_contexts(
    run: RunName, expert: ExpertId, query: Annotated[RandomContextQuery, Query()], services: ServicesDep
) -> Response:
    """Contexts at random over all tokens that an expert is active on, whatever the interval."""
    with reading(services.store) as session:
        record = find_run(session, run)
        found = queries.find_expert(session, record, expert)
        vocabulary = services.library.run(run).vocabulary
        drawn = random_queries.random_contexts(session, record, found, query, vocabulary)
    return written(drawn)


@router.get("/experts/{expert}/influence")
def influence(run: RunName, expert: ExpertId, services: ServicesDep) -> ExpertInfluence:
    """What an expert does and how much it matters, measured on its own contexts by ``mxd influence``."""
    with reading(services.store) as session:
        record = find_run(session, run)
        return influence_queries.expert_influence(session, record, expert, services.library.run(run).vocabulary)


@router.get("/experts/{expert}/map")
async def expert_map(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> ExpertMap:
    """An expert as a linear map: leading singular directions, and output dimensions that it opens and closes."""
    await run_in_threadpool(_check, services, run, expert)

    def work(runs: Sequence[Run], _given_up: object) -> Callable[[LanguageModel], Any]:
        from trainer.expert_map import expert_map as taken_apart

        return lambda language_model: taken_apart(language_model, runs[0], expert)

    found = await while_connected(http, services.live.while_wanted([run], work))
    return ExpertMap.model_validate(found, from_attributes=True)


def _check(services: Services, run: str, expert: int) -> None:
    with reading(services.store) as session:
        queries.check_expert(find_run(session, run), expert)


@router.get("/experts/{expert}/similar")
def similar(
    run: RunName, expert: ExpertId, services: ServicesDep, by: SimilarBy = "gate", limit: Limit = 8
) -> SimilarExperts:
    """The experts most like one: by gate directions, by output scalings, by tokens, or by when they fire."""
    with reading(services.store) as session:
        record = find_run(session, run)
        queries.check_expert(record, expert)
        loaded = services.library.run(run)
        if by == "gate" or by == "output":
            pairs = loaded.likeness.similar(expert, by, limit)
        else:
            sample = services.together.of(session, find_index(session, record))
            alike = sample.companions(expert, 0, limit)
            pairs = sample.by_tokens(expert, limit) if by == "tokens" else [(one.expert, one.overlap) for one in alike]
        return SimilarExperts(by=by, experts=queries.with_names(session, record, pairs, loaded.vocabulary))


@router.get("/experts/{expert}/together")
def together(run: RunName, expert: ExpertId, services: ServicesDep, limit: Limit = 6) -> TogetherExperts:
    """The experts that fire on the token before an expert's, with it, and on the token after."""
    with reading(services.store) as session:
        record = find_run(session, run)
        queries.check_expert(record, expert)
        sample = services.together.of(session, find_index(session, record))
        vocabulary = services.library.run(run).vocabulary
        before, beside, after = (
            named(session, record, sample.companions(expert, shift, limit), vocabulary) for shift in SHIFTS
        )
        return TogetherExperts(
            sampled_tokens=sample.tokens,
            active_tokens=int(sample.active_N[expert]),
            before=before,
            together=beside,
            after=after,
        )


@router.get("/search", response_model=SearchResult)
async def search(
    run: RunName, text: Annotated[SearchText, Query()], services: ServicesDep, limit: Limit = 20
) -> Response:
    """Experts by words: in labels first, then among their tokens, then in their contexts."""
    started = time.perf_counter()
    held = _held(services, run)
    hits = None if held is None else held[0].searches.known((held[1], text, limit))
    if hits is None:
        hits = await run_in_threadpool(_search, services, run, text, limit)
    return written(SearchResult(text=text, hits=hits, took_ms=(time.perf_counter() - started) * 1000))


def _search(services: Services, run: str, typed: str, limit: int) -> tuple[SearchHit, ...]:
    vocabulary = services.library.run(run).vocabulary
    known = services.browsing.of(run).searches.known((vocabulary, typed, limit))
    if known is not None:  # of a store that could not be asked without waiting
        return known

    def found(session: Session, browsed: BrowsedRun) -> tuple[SearchHit, ...]:
        return browsed.searches.of(
            (vocabulary, typed, limit), lambda: search_queries.search(session, browsed, typed, limit, vocabulary)
        )

    return services.browsing.read(run, found)
