"""Experts of a run: pages, one expert, its examples, similar experts, search."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response

from mxd.backend.api.dependencies import ExpertId, RunName, Services, ServicesDep, WriterDep
from mxd.backend.api.event_stream import cancel_on_disconnect
from mxd.backend.database import lists
from mxd.backend.database.engine import reading
from mxd.backend.inference import jobs
from mxd.backend.inference.run_loader import Vocabulary
from mxd.backend.queries import ablation as ablation_queries
from mxd.backend.queries import examples as example_queries
from mxd.backend.queries import expert_page as pages
from mxd.backend.queries import experts as queries
from mxd.backend.queries import search as search_queries
from mxd.backend.queries.coactivation import SHIFTS, named
from mxd.backend.queries.examples import ExampleQuery, RandomExampleQuery
from mxd.backend.queries.expert_detail import expert_detail
from mxd.backend.queries.experts import ExpertQuery
from mxd.backend.queries.run_cache import BrowsedRun
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.queries.search_index import SearchText
from mxd.backend.responses import FAST_COMPRESSION, CachedResponse, json_response, model_response
from mxd.backend.schemas.experts import (
    CoactivatingExperts,
    ExamplePage,
    ExpertAblation,
    ExpertDetail,
    ExpertPage,
    RandomExamples,
    RandomExpert,
    SearchHit,
    SearchResult,
    SimilarBy,
    SimilarExperts,
    WritesResponse,
)
from mxd.trainer.analysis.results import ExpertMap

router = APIRouter(prefix="/runs/{run}", tags=["experts"])

Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("/experts", response_model=ExpertPage)
async def experts(
    run: RunName, query: Annotated[ExpertQuery, Query()], request: Request, services: ServicesDep
) -> Response:
    """A page of experts in the requested order; dead ones are included unless a filter excludes them."""
    cached = _held(services, run)
    # Cached pages are returned without a thread.
    if cached is not None and _is_in_memory(cached[0], query):
        return _kept_page(services, *cached, query).response(request.headers)
    return await run_in_threadpool(_read_page, services, run, query, request.headers)


def _held(services: Services, run: str) -> tuple[BrowsedRun, Vocabulary] | None:
    """Return a run and its vocabulary if they are cached and current."""
    browsed, loaded = services.run_cache.get_cached(run), services.library.get_cached(run)
    return None if browsed is None or loaded is None else (browsed, loaded.vocabulary)


def _is_in_memory(browsed: BrowsedRun, query: ExpertQuery) -> bool:
    return (
        query.list is None
        and query.sort != "match"
        and (not query.search or search_queries.is_cached(browsed, query.search))
    )


def _kept_page(services: Services, browsed: BrowsedRun, vocabulary: Vocabulary, query: ExpertQuery) -> CachedResponse:
    """Return the cached response of a page for this state of the database."""
    return browsed.pages.of(
        (vocabulary, query),
        lambda: CachedResponse.from_body(_page(services, browsed, vocabulary, query), FAST_COMPRESSION),
    )


def _read_page(services: Services, run: str, query: ExpertQuery, headers: Headers) -> Response:
    vocabulary = services.library.run(run).vocabulary if services.run_cache.is_cached(run) else None
    if vocabulary is None and pages.is_whole(query):
        services.run_cache.preload(run)
        with reading(services.database) as session:
            record = find_run(session, run)
            find_index(session, record)
            return json_response(queries.database_page(session, record, query, services.library.run(run).vocabulary))
    browsed = services.run_cache.of(run)
    vocabulary = vocabulary or services.library.run(run).vocabulary
    if _is_in_memory(browsed, query):  # the database would have to wait
        return _kept_page(services, browsed, vocabulary, query).response(headers)
    return json_response(_page(services, browsed, vocabulary, query))


def _page(services: Services, browsed: BrowsedRun, vocabulary: Vocabulary, query: ExpertQuery) -> dict[str, Any]:
    """Return a page from memory, except for searches and lists."""
    chosen: list[NDArray[Any]] = []
    if query.search:
        chosen.append(search_queries.find_experts(services.database, browsed, query.search, vocabulary))
    if query.token is not None:
        chosen.append(browsed.search.users(vocabulary.exact_matches(query.token)))
    if query.tag is not None:
        chosen.append(_ids({expert for expert, tags in browsed.tags.items() if query.tag in tags}))
    if query.list is not None:
        with reading(services.database) as session:
            chosen.append(_ids(lists.experts_in(session, browsed.record.name, query.list)))
    if query.among is not None:
        chosen.append(_ids({int(number) for number in query.among.split(",")}))
    matches: list[int] = []
    if query.search and query.sort == "match":
        hits = _search(services, browsed.record.name, query.search, search_queries.MAX_RANKED)
        matches = [hit.expert for hit in hits]
    return pages.expert_page(browsed, query, chosen, vocabulary, matches)


def _ids(experts: set[int]) -> NDArray[Any]:
    return np.fromiter(experts, np.int64, len(experts))


@router.get("/experts/random")
async def random_expert(run: RunName, services: ServicesDep) -> RandomExpert:
    """A uniformly random active expert."""
    browsed = services.run_cache.get_cached(run)
    if browsed is None:
        browsed = await run_in_threadpool(services.run_cache.of, run)
    return RandomExpert(expert=queries.random_expert(browsed.record, browsed.columns, services.chance))


@router.get("/experts/{expert}", response_model=ExpertDetail)
def expert(run: RunName, expert: ExpertId, services: ServicesDep) -> Response:
    """One expert with its activation bins, its note and its active neighbours by id."""

    def detail(session: Session, browsed: BrowsedRun) -> ExpertDetail:
        return expert_detail(session, browsed, expert, services.library.run(run).vocabulary)

    return model_response(services.run_cache.read(run, detail))


@router.get("/experts/{expert}/examples", response_model=ExamplePage)
def contexts(
    run: RunName, expert: ExpertId, query: Annotated[ExampleQuery, Query()], services: ServicesDep
) -> Response:
    """Stored examples of an expert, bin by bin, strongest first."""

    def page(session: Session, browsed: BrowsedRun) -> dict[str, Any]:
        browsed.place(expert)
        vocabulary = services.library.run(run).vocabulary
        return example_queries.example_page(session, browsed.record, expert, query, vocabulary)

    return json_response(services.run_cache.read(run, page))


@router.get("/experts/{expert}/examples/random", response_model=RandomExamples)
def random_examples(
    run: RunName, expert: ExpertId, query: Annotated[RandomExampleQuery, Query()], services: ServicesDep
) -> Response:
    """Random examples over all tokens on which an expert is active, whatever the bin."""
    with reading(services.database) as session:
        record = find_run(session, run)
        expert_record = queries.find_expert(session, record, expert)
        vocabulary = services.library.run(run).vocabulary
        drawn = example_queries.random_examples(session, record, expert_record, query, vocabulary)
    return model_response(drawn)


@router.get("/experts/{expert}/ablation")
def influence(run: RunName, expert: ExpertId, services: ServicesDep) -> ExpertAblation:
    """Ablation and steering effects of an expert, measured on its own examples by ``mxd ablate``."""
    with reading(services.database) as session:
        record = find_run(session, run)
        return ablation_queries.expert_ablation(session, record, expert, services.library.run(run).vocabulary)


@router.post("/experts/{expert}/ablation")
async def measure_ablation(
    run: RunName, expert: ExpertId, services: ServicesDep, writer: WriterDep, http: Request
) -> ExpertAblation:
    """Measure an expert's effects now, as ``mxd ablate --experts`` does, and store them. Takes some ten seconds."""
    await run_in_threadpool(_check, services, run, expert)
    await cancel_on_disconnect(http, services.live.submit([run], jobs.measure_ablation, expert, writer))
    return await run_in_threadpool(influence, run, expert, services)


@router.get("/experts/{expert}/writes")
async def writes(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> WritesResponse:
    """Next tokens that an expert promotes and suppresses, computed on its strongest examples."""
    examples = await run_in_threadpool(_strongest_examples, services, run, expert)
    result = await cancel_on_disconnect(http, services.live.submit([run], jobs.expert_writes, examples))
    own, other = result.value[0], result.value[1] if len(result.value) > 1 else None
    exceeds = ablation_queries.exceeds(own, other)
    return WritesResponse(writes=own, random=other, exceeds_random=exceeds, took_ms=result.took_ms)


def _strongest_examples(
    services: Services, run: str, expert: int
) -> list[tuple[int, list[ablation_queries.ExampleTokens]]]:
    """Examples of an expert and of its random expert."""
    with reading(services.database) as session:
        record = find_run(session, run)
        queries.find_expert(session, record, expert)
        other = ablation_queries.random_expert(session, record, expert)
        experts = [expert] if other is None else [expert, other]
        return [(number, ablation_queries.strongest_examples(session, record, number)) for number in experts]


@router.get("/experts/{expert}/map", response_model=ExpertMap)
async def expert_map(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> Response:
    """An expert as a matrix: leading singular directions, and output dimensions that it scales most."""
    await run_in_threadpool(_check, services, run, expert)
    result = await cancel_on_disconnect(http, services.live.submit([run], jobs.expert_map, expert))
    return json_response(result.value)


def _check(services: Services, run: str, expert: int) -> None:
    with reading(services.database) as session:
        queries.check_expert(find_run(session, run), expert)


@router.get("/experts/{expert}/similar")
def similar(
    run: RunName, expert: ExpertId, services: ServicesDep, by: SimilarBy = "gate", limit: Limit = 8
) -> SimilarExperts:
    """Experts most similar to one: by gate directions, output scalings, tokens or co-activation."""
    with reading(services.database) as session:
        record = find_run(session, run)
        queries.check_expert(record, expert)
        loaded = services.library.run(run)
        active_tokens, enough_tokens = None, True
        if by == "gate" or by == "output":
            most_similar = loaded.similarity.similar(expert, by, limit)
        else:
            sample = services.together.of(session, find_index(session, record))
            active_tokens, enough_tokens = int(sample.active_N[expert]), sample.has_enough(expert)
            most_similar = sample.by_tokens(expert, limit) if by == "tokens" else sample.by_overlap(expert, limit)
        similar_experts = queries.with_names(session, record, most_similar.experts, loaded.vocabulary)
        return SimilarExperts(
            by=by,
            experts=similar_experts,
            p95=most_similar.p95,
            active_tokens=active_tokens,
            enough_tokens=enough_tokens,
        )


@router.get("/experts/{expert}/coactivation")
def together(run: RunName, expert: ExpertId, services: ServicesDep, limit: Limit = 6) -> CoactivatingExperts:
    """Experts that fire on the token before an expert's tokens, on the same token, and on the token after."""
    with reading(services.database) as session:
        record = find_run(session, run)
        queries.check_expert(record, expert)
        sample = services.together.of(session, find_index(session, record))
        vocabulary = services.library.run(run).vocabulary
        before, beside, after = (
            named(session, record, sample.companions(expert, shift, limit), vocabulary) for shift in SHIFTS
        )
        return CoactivatingExperts(
            sampled_tokens=sample.tokens,
            active_tokens=int(sample.active_N[expert]),
            enough_tokens=sample.has_enough(expert),
            before=before,
            same_token=beside,
            after=after,
        )


@router.get("/search", response_model=SearchResult)
async def search(
    run: RunName, text: Annotated[SearchText, Query()], services: ServicesDep, limit: Limit = 20
) -> Response:
    """Search experts: labels first, then tokens, then examples."""
    started = time.perf_counter()
    cached = _held(services, run)
    hits = None if cached is None else cached[0].searches.known((cached[1], text, limit))
    if hits is None:
        hits = await run_in_threadpool(_search, services, run, text, limit)
    return model_response(SearchResult(text=text, hits=hits, took_ms=(time.perf_counter() - started) * 1000))


def _search(services: Services, run: str, typed: str, limit: int) -> tuple[SearchHit, ...]:
    vocabulary = services.library.run(run).vocabulary
    known = services.run_cache.of(run).searches.known((vocabulary, typed, limit))
    if known is not None:  # the database would have to wait
        return known

    def hits(session: Session, browsed: BrowsedRun) -> tuple[SearchHit, ...]:
        return browsed.searches.of(
            (vocabulary, typed, limit), lambda: search_queries.search(session, browsed, typed, limit, vocabulary)
        )

    return services.run_cache.read(run, hits)
