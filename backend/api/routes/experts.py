"""Experts of a run: pages, one expert, its examples, similar experts, search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from fastapi import APIRouter, Query, Request
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from mxd.backend.api.dependencies import ExpertId, RunName, Services, ServicesDep, WriterDep
from mxd.backend.api.event_stream import (
    EventStream,
    EventStreamJson,
    cancel_on_disconnect,
    stream_responses,
    stream_steps,
)
from mxd.backend.database.engine import reading
from mxd.backend.errors import NoIndexError
from mxd.backend.inference import jobs
from mxd.backend.inference.service import ablation_steps
from mxd.backend.queries import ablation as ablation_queries
from mxd.backend.queries import examples as example_queries
from mxd.backend.queries import experts as queries
from mxd.backend.queries import search as search_queries
from mxd.backend.queries.coactivation import SHIFTS, CoactivationIndex, load_coactivation, named
from mxd.backend.queries.examples import ExampleQuery, RandomExampleQuery
from mxd.backend.queries.expert_detail import expert_detail
from mxd.backend.queries.expert_page import ExpertQuery, expert_page
from mxd.backend.queries.runs import find_index, find_run
from mxd.backend.queries.search import SearchText
from mxd.backend.responses import json_response, model_response
from mxd.backend.schemas.experts import (
    AblationEvent,
    CoactivatingExperts,
    Column,
    ColumnList,
    ExamplePage,
    ExpertDetail,
    ExpertPage,
    RandomAmong,
    RandomExamples,
    RandomExpert,
    RelatedHits,
    SearchHit,
    SimilarBy,
    SimilarExperts,
    WritesResponse,
)
from mxd.trainer.analysis.results import ExpertMap
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS
from mxd.trainer.storage.database.tables import RunRecord

router = APIRouter(prefix="/runs/{run}", tags=["experts"])
of_all_runs = APIRouter(tags=["experts"])

Limit = Annotated[int, Query(ge=1, le=100)]


@of_all_runs.get("/columns")
def columns() -> ColumnList:
    """Columns of the tables of experts: titles, units, descriptions, orders and filters."""
    return ColumnList(columns=tuple(map(Column.of, EXPERT_COLUMNS)))


@router.get("/experts", response_model=ExpertPage)
def experts(run: RunName, query: Annotated[ExpertQuery, Query()], services: ServicesDep) -> Response:
    """A page of experts in the requested order; dead ones are included unless a filter excludes them."""
    vocabulary = services.runs.run(run).vocabulary
    return json_response(expert_page(services.database, services.run_cache, run, query, vocabulary))


@router.get("/experts/random")
def random_expert(run: RunName, services: ServicesDep, among: RandomAmong = "active") -> RandomExpert:
    """A uniformly random expert: any active one, or one of the most steerable."""
    columns = services.run_cache.of(run).columns
    experts = columns.active if among == "active" else columns.most_steerable
    if len(experts) == 0:
        raise NoIndexError(f"Run '{run}' has no {among} experts. Index more text.")
    return RandomExpert(expert=int(services.rng.choice(experts)))


@router.get("/experts/{expert}", response_model=ExpertDetail)
def expert(run: RunName, expert: ExpertId, services: ServicesDep) -> Response:
    """One expert with its activation bins, its note, its measured effects and its active neighbours by id."""
    with reading(services.database) as session:
        record = find_run(session, run)
        return model_response(expert_detail(session, record, expert, services.runs.run(run).vocabulary))


@router.get("/experts/{expert}/examples", response_model=ExamplePage)
def examples(
    run: RunName, expert: ExpertId, query: Annotated[ExampleQuery, Query()], services: ServicesDep
) -> Response:
    """Stored examples of an expert, bin by bin, strongest first."""
    with reading(services.database) as session:
        record = find_run(session, run)
        queries.find_expert(session, record, expert)
        vocabulary = services.runs.run(run).vocabulary
        return json_response(example_queries.example_page(session, record, expert, query, vocabulary))


@router.get("/experts/{expert}/examples/random", response_model=RandomExamples)
def random_examples(
    run: RunName, expert: ExpertId, query: Annotated[RandomExampleQuery, Query()], services: ServicesDep
) -> Response:
    """Random examples over all tokens on which an expert is active, whatever the bin."""
    with reading(services.database) as session:
        record = find_run(session, run)
        expert_record = queries.find_expert(session, record, expert)
        vocabulary = services.runs.run(run).vocabulary
        drawn = example_queries.random_examples(session, record, expert_record, query, vocabulary)
    return model_response(drawn)


@router.post("/experts/{expert}/ablation", response_class=EventStreamJson, responses=stream_responses(AblationEvent))
async def measure_ablation(run: RunName, expert: ExpertId, services: ServicesDep, writer: WriterDep) -> EventStream:
    """Server-sent events: ``progress`` while an expert's effects are measured, ``done`` once they are stored.

    The same as ``mxd ablate --experts``; takes a few seconds on a CPU. Closing the connection cancels.
    """
    await run_in_threadpool(_check, services, run, expert)
    return await stream_steps(ablation_steps(services.inference, run, expert, writer))


@router.get("/experts/{expert}/writes")
async def writes(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> WritesResponse:
    """Next tokens that an expert promotes and suppresses, computed on its strongest examples."""
    examples = await run_in_threadpool(_written_examples, services, run, expert)
    result = await cancel_on_disconnect(http, services.inference.submit([run], jobs.expert_writes, examples))
    own, other = result[0], result[1] if len(result) > 1 else None
    exceeds = ablation_queries.exceeds(own.promoted, () if other is None else other.promoted)
    return WritesResponse(writes=own, random=other, exceeds_random=exceeds)


def _written_examples(
    services: Services, run: str, expert: int
) -> list[tuple[int, list[ablation_queries.ExampleTokens]]]:
    """Examples of an expert and of its random expert."""
    with reading(services.database) as session:
        record = find_run(session, run)
        queries.find_expert(session, record, expert)
        other = ablation_queries.random_expert(session, record, expert)
        experts = [expert] if other is None else [expert, other]
        return [(number, ablation_queries.written_examples(session, record, number)) for number in experts]


@router.get("/experts/{expert}/map", response_model=ExpertMap)
async def expert_map(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> Response:
    """An expert as a matrix: leading singular directions, and output dimensions that it scales most."""
    await run_in_threadpool(_check, services, run, expert)
    return json_response(await cancel_on_disconnect(http, services.inference.submit([run], jobs.expert_map, expert)))


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
        loaded = services.runs.run(run)
        active_tokens, enough_tokens = None, True
        if by == "gate" or by == "output":
            most_similar = loaded.similarity.similar(expert, by, limit)
        else:
            sample = _sample(services, session, record)
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
def coactivation(run: RunName, expert: ExpertId, services: ServicesDep, limit: Limit = 6) -> CoactivatingExperts:
    """Experts that fire on the token before an expert's tokens, on the same token, and on the token after."""
    with reading(services.database) as session:
        record = find_run(session, run)
        queries.check_expert(record, expert)
        sample = _sample(services, session, record)
        vocabulary = services.runs.run(run).vocabulary
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


def _sample(services: Services, session: Session, run: RunRecord) -> CoactivationIndex:
    """Return the routed sample of an indexed run."""
    created = find_index(session, run).created_at
    return services.coactivation.get(run.id, created, lambda: load_coactivation(session, run.id))


@router.get("/search", response_model=tuple[SearchHit, ...])
def search(run: RunName, text: Annotated[SearchText, Query()], services: ServicesDep, limit: Limit = 20) -> Response:
    """Search experts: labels first, then tokens, then examples."""
    vocabulary, browsed = services.runs.run(run).vocabulary, services.run_cache.of(run)
    with reading(services.database) as session:
        tokens = services.run_cache.tokens(session, browsed)
        return json_response(search_queries.search(session, browsed, tokens, text, limit, vocabulary))


@of_all_runs.get("/search/related", response_model=tuple[RelatedHits, ...])
async def search_related(
    text: Annotated[SearchText, Query()],
    runs: Annotated[list[str], Query(min_length=1, max_length=32, description="Names of runs of one language model.")],
    services: ServicesDep,
    http: Request,
    limit: Limit = 20,
) -> Response:
    """Search experts of several layers in plain words, by the words that their language model relates to them."""
    for run in runs:
        await run_in_threadpool(services.run_cache.of, run)  # reports runs without an index before anything is computed
    words = await cancel_on_disconnect(http, services.inference.submit(runs[:1], jobs.related_words, text))
    return json_response(await run_in_threadpool(_related_hits, services, runs, text, words, limit))


def _related_hits(
    services: Services, runs: Sequence[str], text: str, words: Mapping[str, float], limit: int
) -> tuple[RelatedHits, ...]:
    found = []
    with reading(services.database) as session:
        for run in runs:
            vocabulary, browsed = services.runs.run(run).vocabulary, services.run_cache.of(run)
            tokens = services.run_cache.tokens(session, browsed)
            found.append(search_queries.related_hits(browsed, tokens, text, words, limit, vocabulary))
    return tuple(found)
