"""Experts of a run: pages, one in full, its contexts, those like it, and search."""

from __future__ import annotations

import time
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from sqlalchemy.orm import Session
from starlette.responses import Response

from backend import lists, tags
from backend.answers import plain, written
from backend.database import reading
from backend.queries import contexts as context_queries
from backend.queries import experts as queries
from backend.queries import influence as influence_queries
from backend.queries import random_contexts as random_queries
from backend.queries import search as search_queries
from backend.queries.contexts import ContextQuery
from backend.queries.experts import ExpertQuery
from backend.queries.random_contexts import RandomContextQuery
from backend.queries.runs import find_index, find_run
from backend.queries.search import SearchText
from backend.queries.together import SHIFTS, named
from backend.schemas import (
    ContextPage,
    ExpertDetail,
    ExpertInfluence,
    ExpertPage,
    RandomContexts,
    RandomExpert,
    SearchResult,
    SimilarBy,
    SimilarExperts,
    TogetherExperts,
)
from backend.services import ExpertId, RunName, Services, ServicesDep
from trainer.store import RunRecord

router = APIRouter(prefix="/runs/{run}", tags=["experts"])

Limit = Annotated[int, Query(ge=1, le=100)]


@router.get("/experts", response_model=ExpertPage)
def experts(run: RunName, query: Annotated[ExpertQuery, Query()], services: ServicesDep) -> Response:
    """A page of experts in the order asked for; dead ones are included unless a filter leaves them out."""
    with reading(services.store) as session:
        record = find_run(session, run)
        columns = services.columns.of(session, find_index(session, record))
        found = _chosen(session, record, query, services)
        page = queries.expert_page(session, record, query, found, columns, services.library.run(run).vocabulary)
    return plain(page)


def _chosen(session: Session, record: RunRecord, query: ExpertQuery, services: Services) -> list[NDArray[Any]]:
    """Experts that the search leaves, the tag, the list: each that is asked for."""
    chosen: list[NDArray[Any]] = []
    if query.search:
        chosen.append(_found(session, record, query.search, services))
    if query.tag is not None:
        chosen.append(_ids(tags.tagged(session, record.name, query.tag)))
    if query.list is not None:
        chosen.append(_ids(lists.experts_in(session, record.name, query.list)))
    if query.among is not None:
        chosen.append(_ids({int(number) for number in query.among.split(",")}))
    return chosen


def _ids(experts: set[int]) -> NDArray[Any]:
    return np.fromiter(experts, np.int64, len(experts))


def _found(session: Session, record: RunRecord, typed: str, services: Services) -> NDArray[Any]:
    index = services.search_indexes.of(session, find_index(session, record))
    return search_queries.find_experts(session, record, typed, services.library.run(record.name).vocabulary, index)


@router.get("/experts/random")
def random_expert(run: RunName, services: ServicesDep) -> RandomExpert:
    """An active expert, each as likely as the others."""
    with reading(services.store) as session:
        record = find_run(session, run)
        columns = services.columns.of(session, find_index(session, record))
        return RandomExpert(expert=queries.random_expert(record, columns, services.chance))


@router.get("/experts/{expert}", response_model=ExpertDetail)
def expert(run: RunName, expert: ExpertId, services: ServicesDep) -> Response:
    """One expert with its intervals, its note and its active neighbours."""
    with reading(services.store) as session:
        record = find_run(session, run)
        return written(queries.expert_detail(session, record, expert, services.library.run(run).vocabulary))


@router.get("/experts/{expert}/contexts", response_model=ContextPage)
def contexts(
    run: RunName, expert: ExpertId, query: Annotated[ContextQuery, Query()], services: ServicesDep
) -> Response:
    """Stored contexts of an expert: interval by interval, the largest first."""
    with reading(services.store) as session:
        record = find_run(session, run)
        queries.find_expert(session, record, expert)
        page = context_queries.context_page(session, record, expert, query, services.library.run(run).vocabulary)
    return plain(page)


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
            pairs = loaded.similar(expert, by, limit)
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
def search(run: RunName, text: Annotated[SearchText, Query()], services: ServicesDep, limit: Limit = 20) -> Response:
    """Experts by words: in labels first, then among their tokens, then in their contexts."""
    started = time.perf_counter()
    with reading(services.store) as session:
        record = find_run(session, run)
        index = services.search_indexes.of(session, find_index(session, record))
        vocabulary = services.library.run(run).vocabulary
        hits = search_queries.search(session, record, text, limit, vocabulary, index)
    return written(SearchResult(text=text, hits=hits, took_ms=(time.perf_counter() - started) * 1000))
