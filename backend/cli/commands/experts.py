"""``mxd runs`` and ``mxd experts``: trained runs, and the experts of an indexed one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from mxd.backend.cli.base import Command, Positional
from mxd.backend.cli.console import columns, existing_database
from mxd.backend.schemas.experts import ExpertDetail, ExpertSort, Order
from mxd.trainer.errors import NotFoundError, UserError
from mxd.trainer.storage.database.expert_columns import EXPERT_COLUMNS, NUMERIC, ExpertColumn

if TYPE_CHECKING:
    from mxd.backend.schemas.runs import RunSummary


HEADER = (
    "run",
    "status",
    "language model",
    "method",
    "layer",
    "N",
    "K",
    "tokens",
    "norm. MSE",
    "routing",
    "indexed",
    "from",
)
RUNS_TEXT_COLUMNS = 4


class RunsCommand(Command):
    """List all runs, newest first."""

    examples: ClassVar = ("mxd runs", "mxd runs --json", "mxd runs --data /data/mxd")

    def run(self) -> int:
        from mxd.backend.inference.run_loader import RunLoader
        from mxd.backend.queries.runs import list_runs

        settings = self.settings()
        runs: tuple[RunSummary, ...] = ()  # no database yet
        with suppress(NotFoundError), self.reading_existing() as session:
            runs = list_runs(session, RunLoader(settings.data, settings.runs_in_memory).is_training).runs
        rows = [
            (
                run.name,
                run.status,
                run.language_model,
                run.method,
                str(run.layer),
                f"{run.num_experts:,}",
                str(run.k),
                f"{run.trained_tokens:,}",
                f"{run.last_metric.normalized_mse:.4f}" if run.last_metric else "",
                "" if run.routing_share is None else f"{run.routing_share:.2f}",
                "" if run.indexed_tokens is None else f"{run.indexed_tokens:,}",
                run.origin or "",
            )
            for run in runs
        ]
        table = "\n".join(columns(HEADER, rows, RUNS_TEXT_COLUMNS))
        text = table if runs else "No runs yet. Train one with 'mxd train', or explore the demo with 'mxd demo'."
        self.report([run.model_dump(mode="json") for run in runs], text)
        return 0


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

    def run(self) -> int:
        if self.expert is None:
            self._list()
        elif self.model_fields_set & OF_LISTS:
            raise UserError("An id shows one expert. Leave it out to sort, filter or limit the list.")
        else:
            self._show(self.expert)
        return 0

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
    """Return a value of a row as text."""
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
