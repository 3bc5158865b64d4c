"""Experts of a run: pages, one expert, its examples, similar experts, search; and what users write about them."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from mxd.backend.api.dependencies import ExpertId, RunName, ServicesDep, WriterDep
from mxd.backend.api.event_stream import EventStream, stream_progress, streams
from mxd.backend.database import annotations
from mxd.backend.database.engine import reading
from mxd.backend.inference.service import JobContext, cancel_on_disconnect, in_steps
from mxd.backend.queries.coactivation import MIN_EVENTS, SHIFTS, closest, load_coactivation
from mxd.backend.queries.examples import ExampleQuery, example_page, random_examples
from mxd.backend.queries.expert_page import ExpertQuery, expert_page
from mxd.backend.queries.experts import ExampleTokens, expert_detail, find_expert, rows_of, with_names, written_examples
from mxd.backend.queries.glossary import glossary
from mxd.backend.queries.runs import aware, check_expert, find_index, find_run
from mxd.backend.queries.search import SearchText, merged, search_run
from mxd.backend.schemas.base import json_response
from mxd.backend.schemas.experts import (
    AblationEvent,
    AblationStoredEvent,
    AnnotationChange,
    Column,
    ColumnList,
    ExamplePage,
    ExpertDetail,
    ExpertList,
    ExpertLists,
    ExpertPage,
    ListChange,
    ListEntry,
    ListSummary,
    MakeListRequest,
    SearchBy,
    SearchResult,
    SimilarBy,
    SimilarExperts,
)
from mxd.trainer.analysis.results import ExpertMap, ExpertWrites
from mxd.trainer.config.analysis import AblationConfig
from mxd.trainer.inference.units import NUM_CONTROLS, column_values, random_experts
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, ExpertRecord
from mxd.trainer.storage.database.open import writing
from mxd.trainer.storage.database.tables import RunRecord
from mxd.trainer.utils.callbacks import Steps

router = APIRouter(prefix="/runs/{run}", tags=["experts"])
of_all_runs = APIRouter(tags=["experts"])
of_users = APIRouter(prefix="/runs/{run}", tags=["annotations"])

Limit = Annotated[int, Query(ge=1, le=100)]


@of_all_runs.get("/columns")
def columns() -> ColumnList:
    """Columns of the tables of experts: titles, units, descriptions, orders and filters; and the glossary."""
    return ColumnList(columns=tuple(map(Column.of, EXPERT_COLUMNS)), glossary=glossary())


@router.get("/experts", response_model=ExpertPage)
def experts(run: RunName, query: Annotated[ExpertQuery, Query()], services: ServicesDep) -> Response:
    """A page of experts in the requested order; dead ones are included unless a filter excludes them."""
    vocabulary = services.runs.run(run).vocabulary
    return json_response(expert_page(services.database, services.run_cache, run, query, vocabulary))


@router.get("/experts/{expert}", response_model=ExpertDetail)
def expert(run: RunName, expert: ExpertId, services: ServicesDep) -> Response:
    """One expert with its activation bins, its note, its measured effects and its active neighbours by id."""
    with services.reading(run) as (session, record):
        return json_response(expert_detail(session, record, expert, services.runs.run(run).vocabulary))


@router.get("/experts/{expert}/examples", response_model=ExamplePage)
def examples(
    run: RunName, expert: ExpertId, query: Annotated[ExampleQuery, Query()], services: ServicesDep
) -> Response:
    """Stored examples of an expert: bin by bin, strongest first, or a random sample of all its active tokens."""
    with services.reading(run) as (session, record):
        found = find_expert(session, record, expert)
        vocabulary = services.runs.run(run).vocabulary
        if query.seed is None:
            return json_response(example_page(session, record, expert, query, vocabulary))
        return json_response(random_examples(session, record, found, query.seed, query.limit, vocabulary))


SEQUENCES_PER_TURN = 2
"""Sequences of an ablation that are computed at once: few, so that other requests wait only briefly."""


@router.post("/experts/{expert}/ablation", **streams(AblationEvent))
async def measure_ablation(run: RunName, expert: ExpertId, services: ServicesDep, writer: WriterDep) -> EventStream:
    """Server-sent events: ``progress`` while an expert's effects are measured, ``done`` once they are stored.

    The same as ``mxd ablate --experts``; takes a few seconds on a CPU. Closing the connection cancels.
    """
    await services.read(run, lambda _, record: check_expert(record, expert))

    def measured(context: JobContext) -> Steps[Any]:
        from mxd.trainer.analysis.ablation import ablation_in_steps

        return ablation_in_steps(context.runs[0], AblationConfig(experts=(expert,)), context.language_model, writer)

    steps = in_steps(services.inference, [run], SEQUENCES_PER_TURN, measured)
    return await stream_progress(steps, lambda _: AblationStoredEvent())


@router.get("/experts/{expert}/writes")
async def writes(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> ExpertWrites:
    """Next tokens that an expert promotes and suppresses, computed on its strongest examples, beside random experts of
    similar density."""

    def compared(
        session: Session, record: RunRecord
    ) -> tuple[list[ExampleTokens], list[int], dict[int, float], str | None]:
        find_expert(session, record, expert)
        density_N, p99_N = (column_values(session, record, it) for it in (ExpertRecord.density, ExpertRecord.p99))
        controls = random_experts(density_N, expert, NUM_CONTROLS)
        units = {each: float(p99_N[each]) for each in (expert, *controls)}
        label = annotations.labels_of(session, run, [expert]).get(expert)
        return written_examples(session, record, expert), controls, units, label

    given = await services.read(run, compared)

    def written(context: JobContext) -> ExpertWrites:
        from mxd.trainer.analysis.effects import expert_writes

        return expert_writes(context.language_model, context.runs[0], expert, *given)

    return await cancel_on_disconnect(http, services.inference.submit([run], written))


@router.get("/experts/{expert}/map", response_model=ExpertMap)
async def expert_map(run: RunName, expert: ExpertId, services: ServicesDep, http: Request) -> Response:
    """An expert as a matrix: leading singular directions, and output dimensions that it scales most."""
    await services.read(run, lambda _, record: check_expert(record, expert))

    def mapped(context: JobContext) -> ExpertMap:
        from mxd.trainer.analysis.effects import expert_map

        return expert_map(context.language_model, context.runs[0], expert)

    return json_response(await cancel_on_disconnect(http, services.inference.submit([run], mapped)))


@router.get("/experts/{expert}/similar")
def similar(
    run: RunName, expert: ExpertId, services: ServicesDep, by: SimilarBy = "gate", limit: Limit = 8
) -> SimilarExperts:
    """Experts most similar to one: by gate directions, output scalings, tokens, or co-activation on the token before an
    expert's tokens, the same token and the token after."""
    with services.reading(run) as (session, record):
        check_expert(record, expert)
        loaded = services.runs.run(run)
        none: dict[str, Any] = dict.fromkeys(("experts", "before", "after"), ())
        none |= dict.fromkeys(("p95", "sampled_tokens", "active_tokens"))
        made = SimilarExperts(by=by, enough_tokens=True, **none)
        if by == "gate" or by == "output":
            found, p95 = closest(loaded.similarity.cosines_N(expert, by), expert, limit)
        else:
            created = find_index(session, record).created_at
            sample = services.coactivation.get(record.id, created, lambda: load_coactivation(session, record.id))
            made = made.model_copy(
                update={
                    "sampled_tokens": sample.tokens,
                    "active_tokens": int(sample.active_N[expert]),
                    "enough_tokens": bool(sample.active_N[expert] >= MIN_EVENTS),
                }
            )
            if by == "coactivation":
                before, beside, after = (
                    with_names(session, record, sample.companions(expert, shift, limit), loaded.vocabulary)
                    for shift in SHIFTS
                )
                return made.model_copy(update={"experts": beside, "before": before, "after": after})
            found, p95 = sample.by_tokens(expert, limit)
        experts = with_names(session, record, found, loaded.vocabulary)
        return made.model_copy(update={"experts": experts, "p95": p95})


@of_all_runs.get("/search", response_model=SearchResult)
async def search(
    text: Annotated[SearchText, Query()],
    runs: Annotated[list[str], Query(min_length=1, max_length=32, description="Names of runs of one language model.")],
    services: ServicesDep,
    http: Request,
    by: SearchBy = "text",
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of experts per run.")] = 20,
) -> Response:
    """Search experts of one or several layers: text in labels, tokens and examples.

    By ``related``, also words that their language model relates to the text. The expert with the typed number is first,
    then labels that name the text, then the experts with most matching top examples.
    """

    def related_words(context: JobContext) -> dict[str, float]:
        return context.language_model.related_words.of(text, context.runs[0].config.text.start_token)

    words: Mapping[str, float] | None = None
    if by == "related":
        for run in runs:
            await run_in_threadpool(services.run_cache.of, run)  # reports runs without an index before computing
        words = await cancel_on_disconnect(http, services.inference.submit(runs[:1], related_words))

    def found() -> Iterator[SearchResult]:
        with reading(services.database) as session:
            for run in runs:
                vocabulary, browsed = services.runs.run(run).vocabulary, services.run_cache.of(run)
                tokens = services.run_cache.tokens(session, browsed)
                yield search_run(session, browsed, tokens, text, words, limit, vocabulary)

    return json_response(await run_in_threadpool(lambda: merged(list(found()))))


# ---------------------------------------------------------------- annotations

ListId = Annotated[int, Path(ge=0, lt=2**31, description="Number of the list.")]


@of_users.patch("/experts/{expert}", status_code=204)
def annotate_expert(run: RunName, expert: ExpertId, change: AnnotationChange, writer: WriterDep) -> None:
    """Change the label, the note and the tags of an expert."""
    with writing(writer) as session:
        check_expert(find_run(session, run), expert)
        annotations.annotate(session, run, expert, change)


def _summary(record: annotations.ListRecord, experts: int) -> ListSummary:
    return ListSummary(
        id=record.id, name=record.name, note=record.note, experts=experts, updated_at=aware(record.updated_at)
    )


@of_users.get("/lists")
def expert_lists(run: RunName, services: ServicesDep) -> ExpertLists:
    """All lists of a run, last changed first, and its tags, each with its number of experts."""
    with services.reading(run) as (session, _):
        return ExpertLists(
            lists=tuple(_summary(*record) for record in annotations.lists_with_counts(session, run)),
            tags=annotations.tag_counts(session, run),
        )


@of_users.post("/lists", status_code=201)
def make_list(run: RunName, request: MakeListRequest, writer: WriterDep) -> ListSummary:
    """Create a list, optionally with experts."""
    with writing(writer) as session:
        record = find_run(session, run)
        for expert in request.experts:
            check_expert(record, expert)
        made = annotations.make_list(session, run, request.name, request.experts)
        session.flush()
        return _summary(made, len(annotations.entries_of(session, made)))


@of_users.get("/lists/{list_id}")
def expert_list(run: RunName, list_id: ListId, services: ServicesDep) -> ExpertList:
    """One list with its experts, in its order."""
    with services.reading(run) as (session, record):
        list_record = annotations.find_list(session, run, list_id)
        entries = annotations.entries_of(session, list_record)
        vocabulary = services.runs.run(run).vocabulary
        rows = rows_of(session, record, [entry.expert for entry in entries], vocabulary)
        return ExpertList(
            list=_summary(list_record, len(entries)),
            entries=tuple(
                ListEntry(row=rows[entry.expert], note=entry.note) for entry in entries if entry.expert in rows
            ),
        )


@of_users.patch("/lists/{list_id}", status_code=204)
def change_list(run: RunName, list_id: ListId, change: ListChange, writer: WriterDep) -> None:
    """Change the name, the note and the experts of a list; all of it or, on an error, nothing."""
    with writing(writer) as session:
        of_run = find_run(session, run)
        record = annotations.find_list(session, run, list_id)
        for expert in change.add:
            check_expert(of_run, expert)
        annotations.change_list(session, record, change)


@of_users.delete("/lists/{list_id}", status_code=204)
def delete_list(run: RunName, list_id: ListId, writer: WriterDep) -> None:
    """Delete a list; annotations of its experts stay."""
    with writing(writer) as session:
        find_run(session, run)
        annotations.delete_list(session, annotations.find_list(session, run, list_id))
