"""``mxd index``, ``label``, ``runs`` and ``experts``: statistics, examples and labels of experts, made and listed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, Positional, RunCommand
from mxd.backend.cli.console import columns, existing_database, progress_of, stoppable, table, task
from mxd.backend.schemas.experts import ExpertDetail, ExpertSort, Order
from mxd.trainer.config.analysis import IndexConfig
from mxd.trainer.config.training import TextConfig
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, NUMERIC, ExpertColumn
from mxd.trainer.utils.callbacks import Callbacks

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from mxd.backend.schemas.runs import RunSummary
    from mxd.trainer.analysis.labelling.rules import LabelResult
    from mxd.trainer.storage.run import Run

KEY_VARIABLE = "MXD_ENDPOINT_KEY"
LANGUAGE_MODEL_OPTIONS = {"language_model", "limit", "experts", "timeout"}


class LabelCommand(Command):
    """Label experts from their top examples and score each label on held-out examples.

    By default a heuristic writes rules on tokens; no language model is needed, and 'mxd index' runs it automatically.
    With --endpoint a language model writes the labels. Each is saved as soon as it is scored, and rerunning the command
    continues. Set MXD_ENDPOINT_KEY if the endpoint needs an API key. User labels are never changed.
    """

    examples: ClassVar = (
        "mxd label gpt2-l8-k32",
        "mxd label gpt2-l8-k32 --endpoint http://127.0.0.1:11434/v1 --language-model llama3.1 --experts 12,40",
        "mxd label gpt2-l8-k32 --endpoint https://api.openai.com/v1 --language-model gpt-4o-mini --limit 500",
    )
    groups: ClassVar = "labels by a language model: endpoint language-model limit experts timeout"

    name: Positional[str]
    """Name or folder of the run."""
    endpoint: str | None = None
    """URL of an OpenAI-compatible endpoint, such as http://127.0.0.1:11434/v1."""
    language_model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Name of the language model at the endpoint."""
    limit: Annotated[int, Field(gt=0)] = 100
    """Maximum number of experts to label, those with the largest activations first."""
    experts: list[Annotated[int, Field(ge=0)]] | None = None
    """Label only these experts."""
    timeout: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """Seconds to wait for an answer."""

    def run(self) -> None:
        if self.endpoint is not None:
            if not self.endpoint.startswith(("http://", "https://")):
                raise UserError(f"Invalid --endpoint: '{self.endpoint}'. It must start with http:// or https://.")
            if self.language_model is None:
                raise UserError("Missing --language-model. Run 'mxd label --help' for a description.")
        elif self.model_fields_set & LANGUAGE_MODEL_OPTIONS:
            raise UserError("--language-model, --limit, --experts and --timeout require --endpoint.")
        (run,) = self.load_runs([self.name])
        if self.endpoint is not None and self.language_model is not None:
            self._explain(run, self.endpoint, self.language_model)
            return
        with self.opened() as database:
            result = label_run(run, database)
        text = (
            f"{result.run}: {result.labelled:,} of {result.experts:,} active experts labelled in {result.seconds:.0f} s"
        )
        if result.balanced_accuracy is not None and result.precision is not None and result.recall is not None:
            text += (
                f"; mean balanced accuracy on held-out examples {result.balanced_accuracy:.2f}, "
                f"precision {result.precision:.2f}, recall {result.recall:.2f}"
            )
        self.report_measured(asdict(result), text, [run])

    def _explain(self, run: Run, url: str, language_model: str) -> None:
        from mxd.trainer.analysis.labelling.llm_explainer import Endpoint, explain_experts

        endpoint = Endpoint(url, language_model, os.environ.get(KEY_VARIABLE), self.timeout)
        with self.opened() as database, task(f"Explaining {run.name}", "experts") as callbacks:
            result = explain_experts(
                run, database, language_model, endpoint.ask, experts=self.experts, limit=self.limit, callbacks=callbacks
            )
        score = "" if result.balanced_accuracy is None else f", mean balanced accuracy {result.balanced_accuracy:.2f}"
        self.report(
            asdict(result),
            f"{result.run}: {result.labelled:,} experts labelled by {result.labeller}{score}; {result.failed:,} "
            f"without a usable answer, {result.skipped:,} with too few examples to score a label",
        )


def label_run(run: Run, database: Engine) -> LabelResult:
    """Label a run's experts and show progress."""
    from mxd.trainer.analysis.labelling.rules import label_experts

    with task(f"Labelling {run.name}", "experts") as callbacks:
        return label_experts(run, database, callbacks=callbacks)


class IndexCommand(RunCommand):
    """Read text, collect statistics and top examples of every expert, and label the experts.

    Replaces an earlier index of the run.
    """

    examples: ClassVar = (
        "mxd index gpt2-l8-k32 --dataset corpus.jsonl --tokens 5M",
        "mxd index gpt2-l8-k32 --dataset HuggingFaceFW/fineweb --tokens 20M --top-examples 50",
        "mxd index gpt2-l8-k32 --dataset corpus.jsonl --tokens 1M --device cuda --json",
    )

    shares_work: ClassVar = True

    config: IndexConfig
    cache: Path | None = None
    """Folder of activations that mxd train --cache wrote for the same dataset. The text is then read from it, in its
    order, without forward passes of the language model."""

    def run(self) -> None:
        from mxd.trainer.analysis.indexing.build import build_index
        from mxd.trainer.data.activation_cache import ActivationCache
        from mxd.trainer.utils.distributed import init_process_group
        from mxd.trainer.utils.memory import keep_freed_memory

        (run,) = self.load_runs([self.name])
        config = self.config.model_copy(update={"text": with_context_of(run, self.config.text)})
        # torchrun stops all processes if one fails. They listen until they have found out which.
        with self.opened() as database, stoppable() as stop, init_process_group() as group:
            keep_freed_memory()
            language_model = self.load_language_model(run.language_model_source, group)
            with progress_of(group, f"Indexing {run.name}") as progress:
                result = build_index(
                    run,
                    config,
                    language_model,
                    database,
                    group=group,
                    cache=ActivationCache.open(self.cache, language_model.device) if self.cache else None,
                    callbacks=Callbacks(progress, stop),
                )
            labels = label_run(run, database) if group.is_main else None
        if labels is None:
            return
        self.report(
            {**asdict(result), "labelled": labels.labelled},
            f"{result.run}: {result.tokens:,} tokens, {result.examples:,} top examples, "
            f"{result.active_experts:,} active experts, {labels.labelled:,} labelled, "
            f"normalised MSE {result.normalized_mse:.4f}",
        )


def with_context_of(run: Run, text: TextConfig) -> TextConfig:
    """Return ``text`` with the context length and start token that the run was trained with, unless given."""
    trained = run.config.text.model_dump(include={"context_length", "start_token"})
    return text.model_copy(update={name: trained[name] for name in trained if name not in text.model_fields_set})


RUN_COLUMNS: tuple[tuple[str, Callable[[RunSummary], str]], ...] = (
    ("run", lambda run: run.name),
    ("status", lambda run: run.status),
    ("language model", lambda run: run.language_model),
    ("method", lambda run: run.method),
    ("layer", lambda run: str(run.layer)),
    ("N", lambda run: f"{run.num_experts:,}"),
    ("K", lambda run: str(run.k)),
    ("tokens", lambda run: f"{run.trained_tokens:,}"),
    ("norm. MSE", lambda run: f"{run.last_metric.normalized_mse:.4f}" if run.last_metric else ""),
    ("routing", lambda run: "" if run.routing_share is None else f"{run.routing_share:.2f}"),
    ("indexed", lambda run: "" if run.indexed_tokens is None else f"{run.indexed_tokens:,}"),
    ("from", lambda run: run.origin or ""),
)
RUNS_TEXT_COLUMNS = 4


class RunsCommand(Command):
    """List all runs, newest first."""

    examples: ClassVar = ("mxd runs", "mxd runs --json", "mxd runs --data /data/mxd")

    def run(self) -> None:
        from mxd.backend.inference.run_loader import RunLoader
        from mxd.backend.queries.runs import list_runs

        settings = self.settings()
        runs: tuple[RunSummary, ...] = ()  # no database yet
        with suppress(NotFoundError), self.reading_existing() as session:
            runs = list_runs(session, RunLoader(settings.data, settings.runs_in_memory).is_training).runs
        lines = table(runs, RUN_COLUMNS, RUNS_TEXT_COLUMNS)
        empty = "No runs yet. Train one with 'mxd train', or explore the demo with 'mxd demo'."
        self.report([run.model_dump(mode="json") for run in runs], "\n".join(lines) if runs else empty)


TERMINAL_COLUMNS = sorted(
    (column for column in EXPERT_COLUMNS if "terminal" in column.shown), key=lambda column: column.kind in NUMERIC
)
"""Texts first, aligned to the left."""
EXPERTS_TEXT_COLUMNS = sum(column.kind not in NUMERIC for column in TERMINAL_COLUMNS)
MAX_LABEL = 40
MAX_TOKENS_SHOWN = 4
PAGE_ROWS = 200
WINDOW = 12
"""Tokens shown on either side of the strongest one in a top example."""
OF_LISTS = {"sort", "order", "search", "tag", "min_recurrence", "limit"}


class ExpertsCommand(Command):
    """List the experts of an indexed run, sorted or searched, or show one of them.

    'mxd steer --edit' uses the same ids.
    """

    examples: ClassVar = (
        "mxd experts gpt2-l8-k32 1027 --examples 20",
        "mxd experts gpt2-l8-k32 --sort recurrence --min-recurrence 2 --limit 50",
        "mxd experts gpt2-l8-k32 --search capital --json",
    )

    name: Positional[str]
    """Name of the run."""
    expert: Positional[Annotated[int, Field(ge=0)] | None] = None
    """Id of an expert, to show its label, statistics, top tokens and top examples."""
    sort: ExpertSort = "max_activation"
    """Column to sort by. loss_increase, kl_amplified, output_share and input_dependence require 'mxd ablate',
    recurrence requires 'mxd recurrence'."""
    order: Order | None = None
    """Sort order (default: desc, or asc for expert and label)."""
    search: Annotated[str, Field(max_length=200)] | None = None
    """Only experts with these words in a label, among their top tokens or in a top example."""
    tag: Annotated[str, Field(max_length=60)] | None = None
    """Only experts with this tag."""
    min_recurrence: Annotated[int, Field(ge=0)] | None = None
    """Only experts that 'mxd recurrence' found again in at least this many other runs."""
    limit: Annotated[int, Field(ge=1, le=100_000)] = 20
    """Maximum number of experts."""
    examples_shown: Annotated[int, Field(ge=0, le=100, alias="examples")] = 5
    """With the id of an expert: number of top examples."""

    def run(self) -> None:
        if self.expert is None:
            self._list()
        elif self.model_fields_set & OF_LISTS:
            raise UserError("An id shows one expert. Leave it out to sort, filter or limit the list.")
        else:
            self._show(self.expert)

    def _show(self, number: int) -> None:
        from mxd.backend.inference.run_loader import Vocabulary
        from mxd.backend.queries.examples import ExampleQuery, example_page
        from mxd.backend.queries.experts import expert_detail
        from mxd.backend.queries.runs import find_run

        with self.reading_existing() as session:
            (run,) = self.load_runs([self.name])
            vocabulary, record = Vocabulary(run.tokenizer), find_run(session, run.name)
            detail = expert_detail(session, record, number, vocabulary)
            query = ExampleQuery(limit=max(self.examples_shown, 1))
            page = example_page(session, record, number, query, vocabulary)
        examples = page["examples"][: self.examples_shown]
        self.report(
            {"run": self.name, **detail.model_dump(mode="json"), "examples": examples}, _format_expert(detail, examples)
        )

    def _list(self) -> None:
        from mxd.backend.inference.run_loader import Vocabulary
        from mxd.backend.queries.expert_page import ExpertQuery, expert_page
        from mxd.backend.queries.expert_table import RunCache

        order = self.order or ("asc" if self.sort in ("expert", "label") else "desc")
        filters = {"search": self.search or None, "tag": self.tag, "min_recurrence": self.min_recurrence}
        experts: list[dict[str, Any]] = []
        cursor: str | None = None
        with existing_database(self.settings()) as database, closing(RunCache(database)) as cache:
            (run,) = self.load_runs([self.name])
            vocabulary = Vocabulary(run.tokenizer)
            while True:
                limit = min(PAGE_ROWS, self.limit - len(experts))
                query = ExpertQuery(sort=self.sort, order=order, cursor=cursor, limit=limit, **filters)
                page = expert_page(database, cache, run.name, query, vocabulary)
                experts += page["experts"]
                cursor = page["next_cursor"]
                if cursor is None or len(experts) >= self.limit:
                    break
        found = {"run": self.name, "experts": experts, "matching": page["matching"], "total": page["total"]}
        if not experts:
            self.report(found, f"No expert of run '{self.name}' matches.")
            return
        rows = [tuple(cell(column, row) for column in TERMINAL_COLUMNS) for row in experts]
        text = columns([column.title.lower() for column in TERMINAL_COLUMNS], rows, EXPERTS_TEXT_COLUMNS)
        self.report(found, "\n".join([*text, f"{len(rows):,} of {page['matching']:,} matching experts shown."]))


def cell(column: ExpertColumn, row: Mapping[str, Any]) -> str:
    value = row[column.key]
    if column.key == "label":
        label = value or ("" if row["automatic"] is None else row["automatic"].label)
        return label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…"
    if column.kind == "tokens":
        return " ".join(repr(token["text"]) for token in value[:MAX_TOKENS_SHOWN])
    if value is None:
        return "–"
    if column.key == "recurrence":
        return f"{value} of {row['compared_runs']}"
    texts = {"share": f"{value:.3%}", "number": f"{value:.3f}", "difference": f"{value:+.4f}"}
    return texts.get(column.kind, str(value))


def _format_expert(detail: ExpertDetail, examples: list[dict[str, Any]]) -> str:
    row = detail.row
    automatic = f"{row.automatic.label} (automatic)" if row.automatic else "no label"
    lines = [
        f"expert {row.expert}: {row.label or automatic}",
        f"density {row.density:.3%} ({row.active_tokens:,} tokens), mean activation {row.mean_activation:.3f}, "
        f"99th percentile {row.p99:.3f}, maximum {row.max_activation:.3f}",
    ]
    if row.loss_increase is not None and row.kl_amplified is not None:
        lines.append(
            f"ablated: loss {row.loss_increase:+.4f} nats; amplified: KL divergence {row.kl_amplified:.4f} nats"
        )
    tokens = ", ".join(f"{token.text!r} {token.share:.0%}" for token in row.top_tokens)
    lines += [f"tags: {', '.join(row.tags)}"] if row.tags else []
    lines += [f"note: {detail.note}"] if detail.note else []
    if (recurrence := detail.recurrence) is not None and not recurrence.matches:
        too_few = f"fewer than {recurrence.min_tokens} of {recurrence.tokens:,} tokens"
        lines.append(f"not compared with other runs: active on {too_few}")
    elif recurrence is not None:
        lines.append(f"found again in {row.recurrence} of {row.compared_runs} other runs")
        lines += [
            f"  {match.run} {match.expert}: {'found' if match.is_found else 'not found'}, firing cosine "
            f"{match.firing_cosine:.2f} ({match.firing_low:.2f} to {match.firing_high:.2f}; chance "
            f"{match.firing_chance:.2f}), writing cosine {match.writing_cosine:.2f} (chance {match.writing_chance:.2f})"
            for match in recurrence.matches
        ]
    lines.append(f"top tokens: {tokens}")
    for example in examples:
        # The strongest token is put in brackets.
        peak, texts = example["position"], example["tokens"]
        before, after = "".join(texts[max(peak - WINDOW, 0) : peak]), "".join(texts[peak + 1 : peak + 1 + WINDOW])
        shown = " ".join(f"{before}[{texts[peak]}]{after}".split())
        lines.append(f"{example['activation']:8.3f}  {shown}")
    return "\n".join(lines)
